// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package async

import (
	"fmt"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
)

const (
	// OutputFlag is that of the manager by which an operator says how many MiB are kept at once of the output of hosts and
	// of the answers of BMCs.
	OutputFlag = "host-output-mib"
	// LeastOutput in MiB lets a namespace that has no other host at work have a whole output of ssh.MaxStdout.
	LeastOutput = 8
)

// Output shares the memory for what commands on hosts print, and BMCs answer, between namespaces, as Calls shares its
// slots: one namespace has at most four fifths of it, and less where others use it too. Safe for concurrent use.
type Output struct {
	mebibytes int
	pieces    *Slots
}

// NewOutput makes room for so many MiB.
func NewOutput(mebibytes int) *Output {
	return &Output{mebibytes: mebibytes, pieces: NewSlots(mebibytes << 20 / ssh.OutputPiece)}
}

var _ ssh.OutputRoom = (*Output)(nil)

// Take implements ssh.OutputRoom. Nothing waits here: what a host sends meanwhile would be kept elsewhere.
func (o *Output) Take(namespace string) error {
	if o.pieces.Try(namespace) {
		return nil
	}
	return fmt.Errorf("the hosts and BMCs of namespace %s output more at once than it has room for, where %d MiB are "+
		"kept of all; look for those that go on without end, or raise the manager's flag --%s", namespace, o.mebibytes,
		OutputFlag)
}

// Give implements ssh.OutputRoom.
func (o *Output) Give(namespace string) { o.pieces.Leave(namespace) }
