# Copyright The Quoin Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Notes what networks the host had before pods bring theirs, once per claim: cleaning keeps what is in the lists.
[ ! -d "$QUOIN_ROOT/before" ] || exit 0
umask 077
rm -rf "$QUOIN_ROOT/before.part"
mkdir "$QUOIN_ROOT/before.part" && cd "$QUOIN_ROOT/before.part" || quoin_fail "$QUOIN_ROOT cannot be written"
ls -A /etc/cni/net.d >cni 2>/dev/null
ls -A /etc/sysctl.d >settings 2>/dev/null
ls /sys/class/net >links 2>/dev/null
ip rule list >rules4 2>/dev/null
ip -6 rule list >rules6 2>/dev/null
ip -4 route list >routes4 2>/dev/null
ip -6 route list >routes6 2>/dev/null
if command -v ipvsadm >/dev/null; then ipvsadm --save --numeric >services 2>/dev/null; fi
# Whole, for network plugins put their own in the place of these.
mkdir plugins
# Of what is no program, a directory or a link, the name is enough: nobody puts another in its place.
ls -A /opt/cni/bin >names 2>/dev/null
ls -A /usr/libexec/kubernetes/kubelet-plugins/volume/exec >volumes 2>/dev/null
for f in /opt/cni/bin/*; do
	[ -f "$f" ] || continue
	cp -a "$f" plugins/ && sync "plugins/${f##*/}" || quoin_fail "$QUOIN_ROOT cannot be written"
done
for d in /root/.kube /var/lib/calico /var/lib/cilium /var/lib/weave /run/calico /run/cilium /run/flannel; do
	[ ! -e "$d" ] || echo "$d"
done >dirs
# The list of earlier times, which a reset may look for.
[ -e "$QUOIN_ROOT/cni-before" ] || cp cni "$QUOIN_ROOT/cni-before"
# These files alone: a server of somebody's that is gone would hold the whole.
sync ./* && cd / && sync "$QUOIN_ROOT/before.part" && mv -T "$QUOIN_ROOT/before.part" "$QUOIN_ROOT/before" && sync "$QUOIN_ROOT"
