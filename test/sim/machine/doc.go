// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package machine simulates computers, thousands of them in one process, well enough that the scripts which Quoin runs on
// real hosts run on them unmodified.
//
// What is simulated, as seen from a script:
//   - a file tree with directories, links, modes, owners, locks, mounts, and a disk that can be full or read-only;
//     machines share the files of one Image and copy only what they change;
//   - a POSIX shell with descriptors, pipelines, background processes, groups, signals and traps. The text is parsed by
//     mvdan.cc/sh/syntax and evaluated here: that module's own interpreter knows no descriptor above 2, reads its
//     standard input ahead, and cannot be killed at an instruction;
//   - the usual commands (see Commands), awk and sed among them, as functions of this process;
//   - systemd as far as units are started, stopped, enabled, shown and run transiently;
//   - disks, network links, routes, firewall rules and listening ports, as tables that commands read and change;
//   - boots: a reboot or a loss of power ends every process between two instructions, empties /run and /tmp, unmounts,
//     and starts what is enabled.
//
// What is not: CPU, memory and time cost nothing, a write is durable at once (sync does nothing but fail when told to),
// disks have no partitions, keepalived takes its addresses without asking anybody,
// no packet leaves a machine but through Options.Web, and only the flags of commands that scripts use are known. What is
// unknown is loud: an unknown command ends with 127, an unknown flag with 2 and a sentence that names this package.
//
// Programs add commands (kubeadm, kubelet, ctr): a Program runs wherever its Executable lies, so that a script may
// install, copy and remove it like any file.
package machine
