# Copyright The Quoin Authors.
# SPDX-License-Identifier: Apache-2.0
#
# What a freshly installed host lacks and kubeadm's checks or the pods' network need: two modules, and forwarding. The
# files make it last over a reboot; cleaning takes them back.
#
# IPv6 forwarding is left out on purpose: a host that forwards IPv6 takes no router advertisements any more, which may be
# where its own address and route come from. Only who knows that the node has an IPv6 address may turn it on, and these
# steps do not.
set -u
etc=@ETC@ proc=@PROC@

modules='overlay br_netfilter'
printf '%s\n' $modules >"$QUOIN_RUN_DIR/kernel" && quoin_put "$QUOIN_RUN_DIR/kernel" "$etc/modules-load.d/quoin.conf" 0644 ||
	quoin_fail "$etc/modules-load.d/quoin.conf cannot be written"
for module in $modules; do
	# A container may not, and a kernel may have it built in.
	modprobe "$module" 2>/dev/null || echo "warning: module $module was not loaded here; that is fine when the kernel has it already"
done

settings='net.ipv4.ip_forward=1'
if [ -e "$proc/sys/net/bridge/bridge-nf-call-iptables" ]; then
	settings="$settings net.bridge.bridge-nf-call-iptables=1"
else
	echo "warning: this kernel has no br_netfilter; networks that bridge pods need it"
fi
printf '%s\n' $settings >"$QUOIN_RUN_DIR/kernel" && quoin_put "$QUOIN_RUN_DIR/kernel" "$etc/sysctl.d/90-quoin.conf" 0644 ||
	quoin_fail "$etc/sysctl.d/90-quoin.conf cannot be written"
rm -f "$QUOIN_RUN_DIR/kernel"
for setting in $settings; do
	file=$proc/sys/$(printf '%s' "${setting%%=*}" | tr . /) value=${setting#*=}
	# What is right stays untouched: writing ip_forward resets other settings of the interfaces.
	[ "$(cat "$file" 2>/dev/null)" = "$value" ] || (printf '%s\n' "$value" >"$file") 2>/dev/null ||
		echo "warning: $setting could not be set"
done
[ "$(cat "$proc/sys/net/ipv4/ip_forward" 2>/dev/null)" = 1 ] ||
	quoin_fail "net.ipv4.ip_forward is not 1 and cannot be set, so pods could not reach other hosts; set it on this host, or on the one that runs it as a container"
