# Copyright The Quoin Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Kubernetes from a dnf repository; the records are those of apt.sh.

# quoin_dnf <arguments>: what we exclude from updates is for us to install.
quoin_dnf() { "$dnf" -q -y --setopt='disable_excludes=*' "$@"; }

# quoin_dnf_repository <etc> <base URL> <key file or nothing>
quoin_dnf_repository() {
	url=$(printf '%s\n' "$2" | sed "s|{{arch}}|$(uname -m)|g")
	key=$1/pki/rpm-gpg/RPM-GPG-KEY-quoin-kubernetes
	check=0
	if [ -n "$3" ]; then
		quoin_put "$3" "$key" 0644 || quoin_fail "$key cannot be written"
		check=1
	fi
	repository=$1/yum.repos.d/quoin-kubernetes.repo
	{
		printf '%s\n' "[quoin-kubernetes]" "name=Kubernetes" "baseurl=$url" "enabled=1" "gpgcheck=$check"
		[ "$check" = 0 ] || printf '%s\n' "gpgkey=file://$key"
		# No update of the system moves a node's version.
		printf '%s\n' "exclude=kubelet kubeadm kubectl cri-tools kubernetes-cni"
	} >"$QUOIN_RUN_DIR/repository" && quoin_put "$QUOIN_RUN_DIR/repository" "$repository" 0644 || quoin_fail "$repository cannot be written"
	rm -f "$QUOIN_RUN_DIR/repository"
}

# quoin_dnf_version <package> <version without v>
quoin_dnf_version() {
	found=$(quoin_dnf list --showduplicates "$1" 2>/dev/null | while read -r name version _; do
		case $name in "$1".*) ;; *) continue ;; esac
		case ${version#*:} in "$2" | "$2"-* | "$(printf '%s' "$2" | sed 's/-/~/')"-*) echo "$version" ;; esac
	done | tail -n 1)
	[ -n "$found" ] || quoin_fail "no repository of this host has $1 $2; correct spec.artifacts.packages.repository, or add the repository to the host"
}

# quoin_dnf_install <version without v> <etc>
quoin_dnf_install() {
	wanted=
	for name in kubeadm kubelet kubectl; do
		quoin_dnf_version "$name" "$1"
		wanted="$wanted $name-$found"
	done
	# Taken once, before the first attempt: what came with one that was cut is found by the next.
	before=$QUOIN_ROOT/packages-before
	[ -s "$before" ] || { rpm -qa --qf '%{NAME}\n' >"$before.part" && sync "$before.part" && mv -f "$before.part" "$before"; } || exit 1
	quoin_dnf install $wanted && failed= || failed=yes
	rpm -qa --qf '%{NAME}\n' | while read -r name; do
		grep -qxF -- "$name" "$before" || quoin_record "package $name" || exit 1
	done || exit 1
	# At once, also when it failed: what a person installs from now on is not ours to remove.
	rm -f "$before"
	[ -z "$failed" ] || quoin_fail "$dnf could not install$wanted; see its output"
	[ ! -f "$2/yum.repos.d/quoin-kubernetes.repo" ] || return 0
	held=$(quoin_dnf versionlock list 2>/dev/null)
	for name in kubeadm kubelet kubectl kubernetes-cni cri-tools; do
		rpm -q "$name" >/dev/null || continue
		case $held in *"$name"*) continue ;; esac
		quoin_record "hold $name" && quoin_dnf versionlock add "$name" ||
			echo "warning: $name could not be held, because $dnf has no versionlock; an update of the system may change it"
	done
	return 0
}

# quoin_dnf_release: rpm refuses to remove what others need, and then each is tried by itself.
quoin_dnf_release() {
	for name in $(sed -n 's/^hold //p' "$QUOIN_ROOT/created"); do quoin_dnf versionlock delete "$name" || :; done
	before=$QUOIN_ROOT/packages-before
	if [ -s "$before" ]; then
		# The installation was cut before it was recorded.
		rpm -qa --qf '%{NAME}\n' | while read -r name; do
			grep -qxF -- "$name" "$before" || quoin_record "package $name" || exit 1
		done || exit 1
	fi
	ours=
	for name in $(sed -n 's/^package //p' "$QUOIN_ROOT/created"); do
		! rpm -q "$name" >/dev/null || ours="$ours $name"
	done
	if [ -n "$ours" ] && ! rpm -e $ours; then
		for name in $ours; do rpm -e "$name" || echo "package $name stays, because others need it"; done
	fi
	rm -f "$before"
}
