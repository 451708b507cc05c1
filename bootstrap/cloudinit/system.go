// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudinit

import (
	"fmt"
	"strings"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
)

// fstabDefaults are the last four fields, as cloud-init fills them in.
var fstabDefaults = []string{"auto", "defaults,nofail", "0", "2"}

// mountScript adds lines to fstab and mounts them. What was mounted there before is the administrator's: it stays, now
// and when the host is reset. Each line is recorded by itself, for others may write to fstab while the host is a node.
func mountScript(mounts [][]string) string {
	var script strings.Builder
	script.WriteString(mountFunction)
	for _, mount := range mounts {
		fields := append([]string{}, mount...)
		fields = append(fields, fstabDefaults[len(fields)-2:]...)
		fmt.Fprintf(&script, "mount_here %s %s\n", ssh.Quote(fields[1]), ssh.Quote(strings.Join(fields, "\t")))
	}
	return script.String()
}

const mountFunction = `set -eu
# mount_here <directory> <line of fstab>
mount_here() {
	quoin_dirs "$1"
	# As the table of mounts names it: the reset looks there.
	at=$(readlink -f -- "$1")
	if mountpoint -q "$at" && ! grep -qxF -- "mount $at" "$QUOIN_ROOT/created" 2>/dev/null; then
		echo "something was mounted at $1 before; it stays"
		return 0
	fi
	quoin_record "mount $at"
	if ! grep -qsxF -- "$2" /etc/fstab; then
		quoin_record "fstab $2"
		: >"$QUOIN_RUN_DIR/fstab"
		[ ! -f /etc/fstab ] || cat /etc/fstab >"$QUOIN_RUN_DIR/fstab"
		# The last line may lack its end, and two in one keep a host from booting.
		[ -z "$(tail -c 1 "$QUOIN_RUN_DIR/fstab")" ] || echo >>"$QUOIN_RUN_DIR/fstab"
		printf '%s\n' "$2" >>"$QUOIN_RUN_DIR/fstab"
		cp "$QUOIN_RUN_DIR/fstab" /etc/fstab.quoin-part
		chmod 0644 /etc/fstab.quoin-part
		sync /etc/fstab.quoin-part
		mv -fT /etc/fstab.quoin-part /etc/fstab
	fi
	mountpoint -q "$at" || mount "$1"
}
`

func userScript(users []User) string {
	var script strings.Builder
	script.WriteString("set -eu\numask 077\n" + keysFunction)
	for _, u := range users {
		script.WriteString(u.script())
	}
	return script.String()
}

// keysFunction adds keys as cloud-init does: the keys that are there, perhaps the one by which we came, stay. Each is
// recorded by itself, for others may exchange theirs while the host is a node.
const keysFunction = `# add_keys <user> <keys, one per line>
add_keys() {
	home=$(getent passwd "$1" | cut -d: -f6) new=$QUOIN_RUN_DIR/keys
	if [ ! -e "$home/.ssh" ]; then
		mkdir -m 0700 "$home/.ssh"
		chown -h "$1:$(id -g "$1")" "$home/.ssh"
	fi
	quoin_read_keys "$home" "$new"
	[ -z "$(tail -c 1 "$new")" ] || echo >>"$new"
	printf '%s\n' "$2" | while IFS= read -r key; do
		grep -qxF -- "$key" "$new" && continue
		quoin_record "key $1 $key"
		printf '%s\n' "$key" >>"$new"
	done
	chown "$1" "$new"
	chmod 0600 "$new"
	quoin_write_keys "$home" "$new"
	if command -v restorecon >/dev/null; then restorecon -R "$home/.ssh" || :; fi
}
`

// script creates the user unless it exists, and sets the rest in either case, as cloud-init does.
func (u User) script() string {
	var s strings.Builder
	add := []string{"useradd", "--create-home"}
	flag := func(name, value string) {
		if value != "" {
			add = append(add, name, ssh.Quote(value))
		}
	}
	for _, group := range append([]string{u.PrimaryGroup}, u.Groups...) {
		if group != "" {
			fmt.Fprintf(&s, "getent group %[1]s >/dev/null || groupadd %[1]s\n", ssh.Quote(group))
		}
	}
	flag("--comment", u.Gecos)
	flag("--home-dir", u.HomeDir)
	flag("--shell", u.Shell)
	flag("--gid", u.PrimaryGroup)
	flag("--groups", strings.Join(u.Groups, ","))
	fmt.Fprintf(&s, "id -u %[1]s >/dev/null 2>&1 || { quoin_record %[2]s; %[3]s %[1]s; }\n", u.Name,
		ssh.Quote("user "+u.Name), strings.Join(add, " "))
	if u.Passwd != "" {
		// Through standard input: arguments show up in the process list.
		fmt.Fprintf(&s, "printf '%%s\\n' %s | chpasswd --encrypted\n", ssh.Quote(u.Name+":"+u.Passwd))
	}
	if u.LockPassword {
		fmt.Fprintf(&s, "usermod --lock %s\n", u.Name)
	}
	if u.Inactive {
		fmt.Fprintf(&s, "usermod --expiredate 1 %s\n", u.Name)
	}
	if u.Sudo != "" {
		fmt.Fprintf(&s, "printf '%%s\\n' %s >\"$QUOIN_RUN_DIR/sudoers\"\nquoin_put \"$QUOIN_RUN_DIR/sudoers\" "+
			"/etc/sudoers.d/90-quoin-%s 0440\n",
			ssh.Quote(u.Name+" "+u.Sudo), u.Name)
	}
	if len(u.SSHAuthorizedKeys) > 0 {
		fmt.Fprintf(&s, "add_keys %s %s\n", u.Name, ssh.Quote(strings.Join(u.SSHAuthorizedKeys, "\n")))
	}
	return s.String()
}

// ntpScript feeds whichever time service the host has.
func ntpScript(servers []string) string {
	lines := make([]string, 0, len(servers))
	for _, server := range servers {
		lines = append(lines, "server "+server+" iburst")
	}
	return fmt.Sprintf(`set -eu
new=$QUOIN_RUN_DIR/ntp
if systemctl cat chrony.service >/dev/null 2>&1 || systemctl cat chronyd.service >/dev/null 2>&1; then
	conf=/etc/chrony/chrony.conf
	[ -f "$conf" ] || conf=/etc/chrony.conf
	quoin_claim "$conf"
	{ grep -Ev '^(server|pool) ' "$conf" || :; printf '%%s\n' %s; } >"$new"
	quoin_put "$new" "$conf" 0644
	systemctl restart chrony.service 2>/dev/null || systemctl restart chronyd.service
elif systemctl cat systemd-timesyncd.service >/dev/null 2>&1; then
	printf '[Time]\nNTP=%%s\n' %s >"$new"
	quoin_put "$new" /etc/systemd/timesyncd.conf.d/quoin.conf 0644
	systemctl restart systemd-timesyncd.service
else
	quoin_fail "the host has neither chrony nor systemd-timesyncd to follow the NTP servers; install one of them, or drop ntp from the KubeadmConfig"
fi
`, ssh.Quote(strings.Join(lines, "\n")), ssh.Quote(strings.Join(servers, " ")))
}
