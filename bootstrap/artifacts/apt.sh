# Copyright The Quoin Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Kubernetes from an apt repository. What comes and what is held is recorded before the fact:
#   package <name>   was not installed before us
#   hold <name>      was not held before us
export DEBIAN_FRONTEND=noninteractive

# quoin_has_apt: other systems may carry its program, without a dpkg that works.
quoin_has_apt() { command -v apt-get >/dev/null && dpkg --print-architecture >/dev/null 2>&1; }

# quoin_apt <arguments>: waits for others who install something, such as unattended upgrades.
quoin_apt() { apt-get -o DPkg::Lock::Timeout=300 -o Dpkg::Options::=--force-confold "$@"; }

# quoin_apt_repository <etc> <deb line> <key file or nothing>
quoin_apt_repository() {
	line=$(printf '%s\n' "$2" | sed "s|{{arch}}|$(dpkg --print-architecture)|g")
	key=$1/apt/keyrings/quoin-kubernetes.asc
	if [ -n "$3" ]; then
		quoin_put "$3" "$key" 0644 || quoin_fail "$key cannot be written"
		case $line in
		*'['*) line=$(printf '%s\n' "$line" | sed "s|\[|[signed-by=$key |") ;;
		*) line="deb [signed-by=$key] ${line#deb }" ;;
		esac
	fi
	list=$1/apt/sources.list.d/quoin-kubernetes.list
	printf '%s\n' "$line" >"$QUOIN_RUN_DIR/list" && quoin_put "$QUOIN_RUN_DIR/list" "$list" 0644 || quoin_fail "$list cannot be written"
	rm -f "$QUOIN_RUN_DIR/list"
}

# quoin_apt_update: the repositories of the system may have trouble of their own; ours must answer.
quoin_apt_update() {
	list=$1/apt/sources.list.d/quoin-kubernetes.list
	tries=0
	until quoin_apt update; do
		tries=$((tries + 1))
		[ "$tries" -lt 5 ] || { echo "warning: the package lists could not all be renewed"; break; }
		sleep 5
	done
	[ ! -f "$list" ] || quoin_apt -o APT::Update::Error-Mode=any -o Dir::Etc::SourceList="$list" -o Dir::Etc::SourceParts=- -o APT::Get::List-Cleanup=0 update ||
		quoin_fail "the repository of spec.artifacts.packages cannot be read: $(cat "$list"); check its address and its signing key"
}

# quoin_apt_version <package> <version without v>: leaves the newest package of that version in $found.
quoin_apt_version() {
	known=$(apt-cache madison "$1") || quoin_fail "the package lists of this host cannot be read; repair what apt-cache madison $1 complains about"
	found=$(printf '%s\n' "$known" | while IFS=' |' read -r _ version _; do
		case $version in "$2" | "$2"-* | "$(printf '%s' "$2" | sed 's/-/~/')"-*) echo "$version" && break ;; esac
	done)
	[ -n "$found" ] || quoin_fail "no repository of this host has $1 $2, but: $(printf '%s\n' "$known" | while IFS=' |' read -r _ version _; do echo "$version"; done | head -n 5 | quoin_list); correct spec.artifacts.packages.repository, or add the repository to the host"
}

# quoin_apt_install <version without v>
quoin_apt_install() {
	wanted=
	for name in kubeadm kubelet kubectl; do
		quoin_apt_version "$name" "$1"
		wanted="$wanted $name=$found"
	done
	set -- install -y --no-install-recommends --allow-change-held-packages --allow-downgrades $wanted
	# "Inst name [old version] (new version ...": what has no old version is new.
	plan=$(quoin_apt -s "$@") || quoin_fail "apt cannot install$wanted; see its output"
	printf '%s\n' "$plan" | while read -r verb name rest; do
		case "$verb $rest" in
		"Inst ["*) ;;
		Inst*) quoin_record "package $name" || exit 1 ;;
		esac
	done || exit 1
	quoin_apt_note_holds
	if ! quoin_apt "$@"; then
		# An installation that was cut, by a loss of power say, stands in the way of every other.
		[ -n "$(ls /var/lib/dpkg/updates 2>/dev/null)" ] && dpkg --configure -a --force-confold && quoin_apt "$@" ||
			quoin_fail "apt could not install$wanted; see its output"
	fi
	quoin_apt_hold
}

# What moves a node's version. kubernetes-cni and cri-tools come with the others, or not.
quoin_holdable='kubeadm kubelet kubectl kubernetes-cni cri-tools'

# quoin_apt_note_holds: what was held before us stays held after us. Asked once, before the first attempt, because to install
# a package is to release it.
quoin_apt_note_holds() {
	grep -q '^hold ' "$QUOIN_ROOT/created" 2>/dev/null && return
	before=$(apt-mark showhold)
	for name in $quoin_holdable; do
		printf '%s\n' "$before" | grep -qxF "$name" || quoin_record "hold $name" || exit 1
	done
}

# quoin_apt_hold: nothing but us moves a node's version.
quoin_apt_hold() {
	for name in $quoin_holdable; do
		case $(dpkg-query -W -f '${Status}' "$name" 2>/dev/null) in *' installed') ;; *) continue ;; esac
		apt-mark hold "$name" || quoin_fail "$name could not be held"
	done
}

# quoin_apt_release takes back what quoin_apt_install did. Nothing goes that others need by now.
quoin_apt_release() {
	for name in $(sed -n 's/^hold //p' "$QUOIN_ROOT/created"); do apt-mark unhold "$name" >/dev/null 2>&1 || :; done
	ours=
	for name in $(sed -n 's/^package //p' "$QUOIN_ROOT/created"); do
		case $(dpkg-query -W -f '${Status}' "$name" 2>/dev/null) in *' installed' | *' unpacked' | *' half-'*) ours="$ours $name" ;; esac
	done
	[ -n "$ours" ] || return 0
	if [ -z "$(quoin_apt_foreign $ours)" ]; then
		quoin_apt -y purge $ours || quoin_fail "apt could not remove$ours; see its output"
		return 0
	fi
	for name in $ours; do
		others=$(quoin_apt_foreign "$name" | quoin_list)
		if [ -n "$others" ]; then echo "package $name stays, because $others needs it"; else quoin_apt -y purge "$name" || quoin_fail "apt could not remove $name; see its output"; fi
	done
}

# quoin_apt_foreign <package>...: what else would go with them.
quoin_apt_foreign() {
	quoin_apt -s purge "$@" | while read -r verb name _; do
		case $verb in Purg | Remv) ;; *) continue ;; esac
		case " $ours " in *" $name "*) ;; *) echo "$name" ;; esac
	done
}
