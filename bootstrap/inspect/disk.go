// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package inspect

import _ "embed"

// DiskFunctions is sh text for steps that work on disks: quoin_disk finds a disk by the ID that an inspection printed,
// quoin_disk_use and quoin_disk_system say what the disk is used for. It needs the prelude of package run.
//
//go:embed disk.sh
var DiskFunctions string
