// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package reset

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

// The user by which the controller comes may be among those of the bootstrap data, and its key may be exchanged while
// the host is a node.
func TestKeysOfAUserWhoWasThereAreNeitherReplacedNorPutBack(t *testing.T) {
	g := NewWithT(t)
	d := newSteps(t)
	out := sandbox(t, d.provision("claim_users",
		"users:\n- {name: operator, ssh_authorized_keys: [key-a theirs, key-new ours]}\n")+
		d.steps("clean", Plan("reset", Options{}).Steps)+ours+`
mkdir -p /run/home/.ssh
echo 'operator:x:0:0::/run/home:/bin/sh' >>/etc/passwd
printf 'key-old theirs\nkey-a theirs' >/run/home/.ssh/authorized_keys
for stub in useradd usermod chpasswd; do printf '#!/bin/sh\n' >$D/$stub; chmod +x $D/$stub; done
claim first; claim_users; claim_users
sed 's/^/NODE /' /run/home/.ssh/authorized_keys; stat -c 'MODE %a' /run/home/.ssh/authorized_keys
echo 'key-rotated theirs' >>/run/home/.ssh/authorized_keys
claim reset; clean
sed 's/^/FREE /' /run/home/.ssh/authorized_keys
`)
	g.Expect(out).To(ContainSubstring("NODE key-old theirs\nNODE key-a theirs\nNODE key-new ours\nMODE 600\n"))
	g.Expect(out).To(ContainSubstring("FREE key-old theirs\nFREE key-a theirs\nFREE key-rotated theirs\n"))
	g.Expect(out).NotTo(Or(ContainSubstring("FAILED"), ContainSubstring("FREE key-new")))
}

// A hostname of the bootstrap data ends with the claim, not with the next boot: a kubelet that finds another name then
// does not know its own node.
func TestTheHostHasItsOwnNameAgain(t *testing.T) {
	g := NewWithT(t)
	out := sandbox(t, strings.ReplaceAll(function("back", "take_back original /etc/hostname"), "/proc/sys/kernel/hostname", "$D/kernel")+`
mkdir -p "$QUOIN_ROOT/originals/etc"
echo its-own >"$QUOIN_ROOT/originals/etc/hostname"; echo of-the-claim >/etc/hostname; echo of-the-claim >$D/kernel
back; cat /etc/hostname $D/kernel
`)
	g.Expect(out).To(Equal("its-own\nits-own\n"))
}

// userdel removes nobody who runs something. Whoever has the keys of an earlier claim must not be forgotten.
func TestAUserWhoCannotBeRemovedIsNotForgotten(t *testing.T) {
	g := NewWithT(t)
	out := sandbox(t, function("files", "reset_files")+`
set +e
printf '#!/bin/sh\n[ -e $D/ended ] || exit 8\nsed -i /^$2:/d /etc/passwd\n' >$D/userdel; chmod +x $D/userdel
echo 'claimed:x:4711:4711::/run/none:/bin/sh' >>/etc/passwd
echo 'user claimed' >>"$QUOIN_ROOT/created"
files; [ -e "$QUOIN_ROOT/created" ] && echo REMEMBERED
touch $D/ended
files; [ -e "$QUOIN_ROOT/created" ] || echo GONE
`)
	g.Expect(out).To(Equal("the user claimed cannot be removed; end what he runs: loginctl terminate-user " +
		"claimed\nREMEMBERED\nGONE\n"))
}
