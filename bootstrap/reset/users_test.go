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

// Root that follows a link which a local user made gives him what he links to, or takes from others what is theirs.
func TestRootFollowsNoLinkInTheHomeOfAUser(t *testing.T) {
	for name, c := range map[string]struct {
		link, says string
		added      bool
	}{
		"the file that is written": {link: `ln -s /run/secret /run/home/.ssh/authorized_keys.quoin-part`, added: true},
		"the keys": {link: `ln -sf /run/secret /run/home/.ssh/authorized_keys`,
			says: "/run/home/.ssh/authorized_keys is not a plain file"},
		"the directory": {link: `rm -r /run/home/.ssh; ln -s /run/theirs /run/home/.ssh`,
			says: "/run/home/.ssh is not a directory of its own"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			d := newSteps(t)
			out := sandbox(t, d.provision("claim_users", "users:\n- {name: operator, ssh_authorized_keys: [key-new ours]}\n")+
				function("back", "forget_keys")+ours+`
echo 'operator:x:12:12::/run/home:/bin/sh' >>/etc/passwd
for stub in useradd usermod chpasswd; do printf '#!/bin/sh\n' >$D/$stub; chmod +x $D/$stub; done
home() {
	rm -rf /run/home /run/theirs; mkdir -p /run/home/.ssh /run/theirs
	echo root-only >/run/secret; chmod 0640 /run/secret
	printf 'key-old theirs\nkey-new ours\n' | tee /run/theirs/authorized_keys >/run/home/.ssh/authorized_keys
	[ "$1" = with ] || sed -i /key-new/d /run/theirs/authorized_keys /run/home/.ssh/authorized_keys
	`+c.link+`
}
look() {
	echo "$1 secret=$(cat /run/secret) $(stat -c '%u %a' /run/secret /run/theirs /run/theirs/authorized_keys | tr '\n' ' ')"
	if grep -qs root-only /run/home/.ssh/authorized_keys && [ ! -L /run/home/.ssh/authorized_keys ]; then echo "$1 SHOWN"; fi
	grep -c key-new /run/theirs/authorized_keys /run/home/.ssh/authorized_keys 2>/dev/null | sed "s/^/$1 /"
}
claim first; home without; (claim_users) 2>&1; look CLAIMED
echo 'key operator key-new ours' >>"$QUOIN_ROOT/created"
claim reset; home with; (back) 2>&1; look RESET
`)
			t.Log(out)
			for _, when := range []string{"CLAIMED", "RESET"} {
				g.Expect(out).To(ContainSubstring(when + " secret=root-only 0 640 0 755 0 644 \n"))
			}
			g.Expect(out).NotTo(ContainSubstring("SHOWN"))
			g.Expect(out).To(ContainSubstring(c.says))
			if c.added {
				g.Expect(out).To(And(ContainSubstring("CLAIMED /run/home/.ssh/authorized_keys:1"),
					ContainSubstring("RESET /run/home/.ssh/authorized_keys:0")))
			} else {
				g.Expect(out).To(ContainSubstring("the keys of operator cannot be taken back"))
			}
		})
	}
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

// Whoever had the node wrote where its etcd keeps its data.
func TestOnlyWhatEtcdMadeIsRemovedWhereTheHostSaysThatItsDataLie(t *testing.T) {
	for name, c := range map[string]struct{ dir, more string }{
		"a directory of an administrator": {"/var/lib/theirs", ""},
		"with a blank":                    {"/var/lib/their own", "mkdir -p /var/lib/their own; echo x | tee own/x >/var/lib/their/x"},
		"with a glob":                     {"/var/lib/their*", "mkdir -p /var/lib/theirs; echo x >/var/lib/theirs/x"},
		"by a link": {"/var/lib/theirs", `mkdir -p /var/lib/theirs /run/else/wal; echo x >/run/else/x
ln -s /run/else /var/lib/theirs/before-1`},
		"the system's": {"/var/lib", ""},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			out := sandbox(t, function("kubelet", "reset_kubelet")+function("files", "reset_files")+`
cd /run
dir='`+c.dir+`'
`+c.more+`
mkdir -p "$dir/member/wal" "$dir/restored-1/member/snap" "$dir/before-0" /etc/kubernetes/manifests
echo precious | tee "$dir/precious" >"$dir/before-0/precious"
echo "    - --data-dir=$dir" >/etc/kubernetes/manifests/etcd.yaml
before=$(find /run /var/lib ! -path '/var/lib/quoin*' -type f | sort)
set +e
kubelet; files; kubelet; files
[ "$(find /run /var/lib ! -path '/var/lib/quoin*' -type f | sort)" = "$before" ] && echo KEPT
for made in "$dir/member" "$dir/restored-1"; do [ ! -e "$made" ] || echo "LEFT $made"; done
`)
			g.Expect(out).To(Equal("KEPT\n"))
		})
	}
}

func TestADirectoryOfTheSystemIsNotEmptied(t *testing.T) {
	for _, dir := range []string{"/", "//", "/.", "/etc", "/usr/lib", "/run/link"} {
		t.Run(dir, func(t *testing.T) {
			g := NewWithT(t)
			// What would delete only says so, and reads no mounts: a mount below would refuse it as well.
			out := sandbox(t, function("emptied", "find() { echo DELETES; }\nrmdir() { echo DELETES; }\nbelow() { :; }\nempty "+dir)+`
ln -s / /run/link
set +e
(emptied) 2>&1
:
`)
			g.Expect(out).To(And(ContainSubstring("which is the system's"), Not(ContainSubstring("DELETES"))))
		})
	}
}

// The root directory ends with its slash already.
func TestAllMountsAreBelowTheRoot(t *testing.T) {
	out := sandbox(t, function("mounts", "below /")+"mounts\n")
	NewWithT(t).Expect(strings.Fields(out)).To(And(ContainElement("/var/lib"), Not(ContainElement("/"))))
}
