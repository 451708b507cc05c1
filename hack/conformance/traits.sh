# Copyright The Quoin Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Prints what tells one system from another: a name, a tab, a value. What is not there is left out.
say() { [ -z "$2" ] || printf '%s\t%s\n' "$1" "$2"; }
first() { sed -n '1s/[[:space:]]*$//p'; }

say systemd "$(systemctl --version 2>/dev/null | first)"
say sshd "$(for p in /usr/sbin/sshd /usr/local/sbin/sshd; do [ ! -x "$p" ] || "$p" -V 2>&1; done | sed -n 's/.*\(OpenSSH_[^ ,]*\).*/\1/p' | first)"
say sudo "$(sudo --version 2>/dev/null | first)"
say 'login shell' "$(getent passwd "${SUDO_USER:-root}" 2>/dev/null | sed 's/.*://' | first)"
say /bin/sh "$(readlink -f /bin/sh)"
say coreutils "$(sort --version 2>/dev/null | first)"
say awk "$(readlink -f "$(command -v awk)")"
say 'C library' "$(ldd --version 2>&1 | first)"
say iptables "$(iptables --version 2>/dev/null | first)"
say SELinux "$(getenforce 2>/dev/null | first)"
say AppArmor "$([ ! -r /sys/module/apparmor/parameters/enabled ] || cat /sys/module/apparmor/parameters/enabled)"
say virtualization "$(systemd-detect-virt 2>/dev/null | first)"
say requiretty "$(grep -hsE '^[[:space:]]*Defaults.*[^!]requiretty' /etc/sudoers /etc/sudoers.d/* | first)"
say /tmp "$(awk '$2 == "/tmp" { print $3, $4 }' /proc/self/mounts | first)"
exit 0
