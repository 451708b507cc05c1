# Copyright The Quoin Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Prints what a plan may change on a host: files with their modes and owners, and units. Changes nothing.
for dir in /etc/kubernetes /etc/cni /etc/systemd/system /etc/modules-load.d /etc/sysctl.d /etc/cloud /var/lib/kubelet /var/lib/etcd \
	/var/lib/quoin /usr/bin /run/kubeadm /run/cluster-api; do
	[ -d "$dir" ] || continue
	find "$dir" 2>/dev/null | while read -r name; do
		case $name in /var/lib/kubelet/pods/*) continue ;; esac
		[ ! -L "$name" ] || continue
		said=$(stat -c '%A %U:%G' "$name" 2>/dev/null) && printf 'file %s %s\n' "$said" "$name"
	done
done
for unit in kubelet.service containerd.service; do
	enabled=$(systemctl is-enabled "$unit" 2>/dev/null)
	# Newer ones say not-found where older ones say nothing.
	[ "$enabled" != not-found ] || enabled=
	active=$(systemctl is-active "$unit" 2>/dev/null)
	printf 'unit %s %s %s\n' "$unit" "${enabled:-absent}" "${active:-inactive}"
done
echo end
