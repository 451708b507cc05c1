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

func mountScript(mounts [][]string) string {
	var script strings.Builder
	script.WriteString("set -eu\nquoin_claim /etc/fstab\n")
	for _, mount := range mounts {
		fields := append([]string{}, mount...)
		fields = append(fields, fstabDefaults[len(fields)-2:]...)
		line := ssh.Quote(strings.Join(fields, "\t"))
		fmt.Fprintf(&script, "grep -qxF -- %[1]s /etc/fstab || printf '%%s\\n' %[1]s >>/etc/fstab\n", line)
		if fields[1] == "none" || fields[2] == "swap" {
			fmt.Fprintf(&script, "quoin_fail %s\n", ssh.Quote("mounts: swap and mounts without a directory are not set up by Quoin; the kubelet wants no swap"))
			continue
		}
		dir := ssh.Quote(fields[1])
		fmt.Fprintf(&script, "quoin_dirs %[1]s\nquoin_record %[2]s\nmountpoint -q %[1]s || mount %[1]s\n", dir, ssh.Quote("mount "+fields[1]))
	}
	return script.String()
}

func userScript(users []User) string {
	var script strings.Builder
	script.WriteString("set -eu\numask 077\n")
	for _, u := range users {
		script.WriteString(u.script())
	}
	return script.String()
}

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
	fmt.Fprintf(&s, "id -u %[1]s >/dev/null 2>&1 || { quoin_record %[2]s; %[3]s %[1]s; }\n", u.Name, ssh.Quote("user "+u.Name), strings.Join(add, " "))
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
		fmt.Fprintf(&s, "printf '%%s\\n' %s >\"$QUOIN_RUN_DIR/sudoers\"\nquoin_put \"$QUOIN_RUN_DIR/sudoers\" /etc/sudoers.d/90-quoin-%s 0440\n",
			ssh.Quote(u.Name+" "+u.Sudo), u.Name)
	}
	if len(u.SSHAuthorizedKeys) > 0 {
		fmt.Fprintf(&s, `home=$(getent passwd %[1]s | cut -d: -f6)
install -d -m 0700 -o %[1]s -g "$(id -g %[1]s)" "$home/.ssh"
printf '%%s\n' %[2]s >"$QUOIN_RUN_DIR/keys"
quoin_put "$QUOIN_RUN_DIR/keys" "$home/.ssh/authorized_keys" 0600 %[1]s
`, u.Name, ssh.Quote(strings.Join(u.SSHAuthorizedKeys, "\n")))
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
