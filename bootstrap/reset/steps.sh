# Copyright The Quoin Authors.
# SPDX-License-Identifier: Apache-2.0
#
# One function per step of the reset. Each may run on a host that was reset already, or that was never a node.

# Without awk the looks below would see nothing, and nothing looks like clean.
command -v awk >/dev/null || quoin_fail "awk is not installed on this host; install it (mawk or gawk)"

ctrk() { timeout 60 ctr -n k8s.io "$@"; }

# real <path>: where it lies, for the table of mounts knows no links, and find follows none that it is given.
real() { readlink -f -- "$1" || printf '%s\n' "$1"; }

# below <path>: mount points strictly below a path, the deepest first.
below() { awk -v p="$(real "$1")" 'BEGIN { sub("/*$", "/", p) } $2 != p && index($2, p) == 1 { print $2 }' /proc/self/mounts | sort -ru; }

# A server that is gone would hold umount for good; what is detached lazily is out of reach all the same.
unmount_below() {
	below "$1" | while read -r point; do
		point=$(printf '%b' "$point")
		timeout 20 umount "$point" 2>/dev/null || umount -l "$point" || echo "cannot unmount $point"
	done
}

# empty <dir>: removes what is in it; the directory too unless it is a disk of its own. Never across a mount: what is
# still mounted there may be somebody's volume, and -xdev does not stop at a directory that is mounted from the same disk.
# A link that leads to what the system lives from is refused.
empty() {
	[ -d "$1" ] || return 0
	case $(real "$1") in
	/ | /bin | /boot | /dev | /etc | /home | /lib | /lib64 | /media | /mnt | /opt | /proc | /root | /run | /sbin | /srv | /sys | /tmp | /usr | /usr/* | /var | /var/cache | /var/lib | /var/log | /var/tmp)
		quoin_fail "$1 is $(real "$1"), which is the system's, and nothing is deleted there; look what made it so, and take that away" ;;
	esac
	[ -z "$(below "$1")" ] ||
		quoin_fail "mounts remain below $1, and nothing is deleted there: $(below "$1" | head -n 3 | tr '\n' ' '); unmount them or reboot the host"
	find "$(real "$1")" -xdev -mindepth 1 -delete || :
	rmdir "$1" 2>/dev/null || :
}

# empty_etcd <dir>: removes what etcd, and a recovery of it, made in a directory that the host itself names. All else there
# may be anybody's: whoever had the node wrote that name.
empty_etcd() {
	for made in "$1"/member "$1"/restored-* "$1"/raised-* "$1"/before-*; do
		# A link leads out of it.
		[ ! -L "$made" ] || continue
		[ -e "$made/snap" ] || [ -e "$made/wal" ] || [ -e "$made/member" ] || continue
		empty "$made"
	done
	rmdir "$1" 2>/dev/null || :
}

reset_kubelet() {
	# The etcd data may lie elsewhere than usual; its manifest is about to go.
	data=$(sed -n 's/^ *- --data-dir=//p' /etc/kubernetes/manifests/etcd.yaml 2>/dev/null | head -n 1)
	case $data in /?*) printf '%s\n' "$data" >"$QUOIN_ROOT/etcd-data-dir" ;; esac
	systemctl cat kubelet.service >/dev/null 2>&1 || return 0
	systemctl disable --now kubelet.service || quoin_fail "the kubelet cannot be stopped"
}

reset_kubeadm() {
	# Before kubeadm deletes anything: a data disk may be mounted where the node kept its files.
	unmount_own
	unmount_below /var/lib/kubelet
	[ -z "$(below /var/lib/kubelet)" ] || quoin_fail "mounts remain below /var/lib/kubelet: $(below /var/lib/kubelet | head -n 3 | tr '\n' ' '); unmount them or reboot the host"
	if command -v kubeadm >/dev/null && [ -n "$(find /etc/kubernetes -type f 2>/dev/null | head -n 1)" ]; then
		# Membership in etcd is decided elsewhere, with quorum in view, long before a host is cleaned.
		timeout 180 kubeadm reset --force --cri-socket unix:///run/containerd/containerd.sock \
			--skip-phases=remove-etcd-member || echo "kubeadm reset ended with code $?; the next steps remove what it left"
	fi
}

reset_pods() {
	reset_containers
	# What a pod started on the host itself has no container; what it starts meanwhile is ended with the next look.
	no_processes() {
		pids=$(quoin_pod_processes)
		[ -n "$pids" ] || return 0
		kill -s KILL $pids 2>/dev/null
		return 1
	}
	quoin_settle 30 no_processes || quoin_fail "processes of pods remain: $(quoin_pod_processes | tr '\n' ' '); reboot the host"
}

reset_containers() {
	command -v ctr >/dev/null || return 0
	if ! timeout 20 ctr version >/dev/null 2>&1; then
		systemctl start containerd.service 2>/dev/null
		quoin_settle 15 timeout 20 ctr version >/dev/null 2>&1 ||
			quoin_fail "containerd does not answer, so its pods cannot be removed; start or repair it"
	fi
	if [ -n "$(ctrk tasks ls -q)" ]; then
		# The processes themselves: containerd may wait for a sandbox that nobody told to end.
		ctrk tasks ls | awk 'NR > 1 && $2 ~ /^[0-9]+$/ && $2 > 1 { print $2 }' | while read -r pid; do kill -s KILL "$pid" 2>/dev/null || :; done
	fi
	ctrk tasks ls -q | while read -r id; do ctrk tasks delete --force "$id" >/dev/null 2>&1 || :; done
	# A task that has just been killed may still hold its container.
	no_containers() {
		ctrk containers ls -q | while read -r id; do
			ctrk tasks delete --force "$id" >/dev/null 2>&1 || :
			ctrk containers delete "$id" >/dev/null 2>&1 || :
		done
		[ -z "$(ctrk containers ls -q)" ]
	}
	quoin_settle 30 no_containers || quoin_fail "containers of Kubernetes remain: $(ctrk containers ls -q | tr '\n' ' '); restart containerd or reboot the host"
	if ctr sandboxes --help >/dev/null 2>&1; then
		ctrk sandboxes ls 2>/dev/null | awk 'NR > 1 { print $1 }' | while read -r id; do ctrk sandboxes rm --force "$id" >/dev/null 2>&1 || :; done
	fi
	# Those of containers that have just gone end by themselves.
	no_shims() { [ -z "$(quoin_shims)" ]; }
	quoin_settle 3 no_shims || for pid in $(quoin_shims); do kill -s KILL "$pid" 2>/dev/null || :; done
	quoin_settle 10 no_shims || quoin_fail "processes that hold containers of Kubernetes remain: $(quoin_shims | tr '\n' ' '); reboot the host"
	return 0
}

# reset_images removes what the host did not have before the claim, by digest: what a tenant named, or named anew, is in no
# baseline of the management cluster. $baseline is empty where nothing is known, or is to be compared.
reset_images() {
	case $baseline in
	2:*) case ,${baseline#2:} in *,image=*) ;; *) return 0 ;; esac ;;
	# Of an earlier version.
	*) case ,${baseline%%:*}, in *,image,*) ;; *) return 0 ;; esac ;;
	esac
	command -v ctr >/dev/null || return 0
	ctrk images ls | while read -r name _ digest _; do
		case $digest in *:*) ;; *) continue ;; esac
		sum=$(printf 'image\t%s\t%s' "$name" "$digest" | sha256sum | cut -c 1-24)
		case $baseline in *"$sum"*) continue ;; esac
		quoin_unmark "$name"
		ctrk images rm "$name" </dev/null >/dev/null || :
	done
}

# mounted <path>: not mountpoint, for that asks the file system itself, which may be the one that hangs.
mounted() { awk -v p="$1" '$2 == p { f = 1 } END { exit !f }' /proc/self/mounts; }

# forget_fstab takes our lines out of fstab, and leaves every other, however it came there.
forget_fstab() {
	grep -qs '^fstab ' "$QUOIN_ROOT/created" && [ -f /etc/fstab ] || return 0
	while IFS= read -r line || [ -n "$line" ]; do
		grep -qxF -- "fstab $line" "$QUOIN_ROOT/created" || printf '%s\n' "$line"
	done </etc/fstab >"$QUOIN_RUN_DIR/fstab"
	cmp -s "$QUOIN_RUN_DIR/fstab" /etc/fstab && return 0
	cp "$QUOIN_RUN_DIR/fstab" /etc/fstab.quoin-part && chmod 0644 /etc/fstab.quoin-part && sync /etc/fstab.quoin-part &&
		mv -fT /etc/fstab.quoin-part /etc/fstab && sync /etc || quoin_fail "/etc/fstab cannot be written"
	systemctl daemon-reload 2>/dev/null || :
}

# unmount_own takes the disks away that the bootstrap data mounted, before anything below their directories is deleted:
# what is on a data disk stays. Every step that deletes begins with it, for the host may boot between two steps; fstab
# comes first, so that no boot mounts them again.
unmount_own() {
	[ -f "$QUOIN_ROOT/created" ] || return 0
	forget_fstab
	for point in $(sed -n 's/^mount //p' "$QUOIN_ROOT/created" | sort -ru); do
		tries=0
		while mounted "$point"; do
			unmount_below "$point"
			timeout 20 umount "$point" || umount -l "$point" || echo "cannot unmount $point"
			tries=$((tries + 1))
			# One may lie on another.
			[ $tries -lt 5 ] || quoin_fail "$point cannot be unmounted, and nothing is deleted while it is mounted; unmount it or reboot the host"
		done
	done
}

reset_mounts() {
	unmount_below /var/lib/kubelet
	below /run/containerd/io.containerd.grpc.v1.cri/sandboxes | while read -r point; do umount -l "$point" 2>/dev/null || :; done
	for ns in /run/netns/cni-* /var/run/netns/cni-*; do
		[ -e "$ns" ] || continue
		# The veth pairs go with their namespace.
		umount -l "$ns" 2>/dev/null || :
		rm -f "$ns"
	done
	unmount_own
	[ -z "$(below /var/lib/kubelet)" ] || quoin_fail "mounts remain below /var/lib/kubelet: $(below /var/lib/kubelet | head -n 3 | tr '\n' ' '); unmount them or reboot the host"
}

# reset_files takes back what "created" lists, last first: units are stopped before their files go, and directories come
# after what is in them.
reset_files() {
	unmount_own
	data=$(head -n 1 "$QUOIN_ROOT/etcd-data-dir" 2>/dev/null)
	case $data in /*) empty_etcd "$data" ;; esac
	# The logs of its pods are the cluster's too: the next one may be somebody else's, and its kubelet would count them as restarts.
	for d in /etc/kubernetes /var/lib/etcd /var/lib/kubelet /var/log/pods /var/log/containers /run/kubeadm /var/run/kubernetes; do empty "$d"; done
	# The lists of claims that began before there was a copy of the plugins say nothing about it.
	if [ -d "$QUOIN_ROOT/before/plugins" ] && [ -f "$QUOIN_ROOT/before/dirs" ] && ! grep -qxF /root/.kube "$QUOIN_ROOT/before/dirs"; then
		rm -rf /root/.kube
	fi
	rm -f /run/cluster-api/bootstrap-success.complete /run/cluster-api/placeholder "$QUOIN_ROOT/kubelet.env"
	rmdir /run/cluster-api 2>/dev/null
	if [ -f "$QUOIN_ROOT/created" ]; then
		sed -n 's/^unit //p' "$QUOIN_ROOT/created" | while read -r unit; do systemctl disable --now "$unit" 2>/dev/null || :; done
		forget_keys
		for kind in file original dir user; do
			sed -n "s/^$kind //p" "$QUOIN_ROOT/created" | tac | while read -r name; do take_back "$kind" "$name"; done
		done
		systemctl daemon-reload 2>/dev/null
		systemctl reset-failed 2>/dev/null
		for name in $(sed -n 's/^user //p' "$QUOIN_ROOT/created"); do
			! id -u "$name" >/dev/null 2>&1 || quoin_fail "the user $name cannot be removed; end what he runs: loginctl terminate-user $name"
		done
		for name in $(sed -n 's/^file //p' "$QUOIN_ROOT/created"); do
			[ ! -f "$name" ] || quoin_fail "$name cannot be removed; is its file system read-only?"
		done
		rm -f "$QUOIN_ROOT/created"
	fi
	rm -rf "$QUOIN_ROOT/originals" "$QUOIN_ROOT/cni-before" "$QUOIN_ROOT/before" "$QUOIN_ROOT/etcd-data-dir" "$QUOIN_ROOT/cache" "$QUOIN_ROOT/recovery"
}

# forget_keys takes the keys back that the bootstrap data gave to users who were there before; what others exchanged since,
# perhaps the key by which we came, stays.
forget_keys() {
	sed -n 's/^key \([^ ]*\) .*/\1/p' "$QUOIN_ROOT/created" | sort -u | while read -r user; do
		home=$(getent passwd "$user" | cut -d: -f6)
		[ -n "$home" ] && [ -f "$home/.ssh/authorized_keys" ] || continue
		had=$QUOIN_RUN_DIR/keys.had keys=$QUOIN_RUN_DIR/keys
		(
			quoin_read_keys "$home" "$had" && cp -aT "$had" "$keys" || exit
			while IFS= read -r line || [ -n "$line" ]; do
				grep -qxF -- "key $user $line" "$QUOIN_ROOT/created" || printf '%s\n' "$line"
			done <"$had" >"$keys"
			quoin_write_keys "$home" "$keys"
		) || echo "the keys of $user cannot be taken back"
	done
}

take_back() {
	case $1 in
	file) rm -f "$2" ;;
	dir) rmdir "$2" 2>/dev/null || : ;;
	user) userdel --remove "$2" 2>/dev/null || : ;;
	original)
		# Copied, not moved: a reset that is cut off here starts over and still finds it.
		[ -e "$QUOIN_ROOT/originals$2" ] || return 0
		mkdir -p "$(dirname "$2")"
		cp -a "$QUOIN_ROOT/originals$2" "$2.quoin-part" && mv -fT "$2.quoin-part" "$2"
		# Else the next node takes the name that the host has only until it boots.
		[ "$2" != /etc/hostname ] || head -n 1 /etc/hostname >/proc/sys/kernel/hostname || :
		;;
	esac
}

# reset_runs forgets the plans that ended, but for this one: its journal is still being written.
reset_runs() {
	for d in "$QUOIN_ROOT"/runs/*; do
		[ "$d" = "$QUOIN_RUN_DIR" ] || rm -rf "$d"
	done
}
