# Copyright The Quoin Authors.
# SPDX-License-Identifier: Apache-2.0
#
# etcd as a static pod of kubeadm.
manifest=/etc/kubernetes/manifests/etcd.yaml
look='its log is below /var/log/pods/kube-system_etcd-*'

# argument <name> <manifest>: what the manifest gives etcd.
argument() { sed -n "s/^ *- --$1=//p" "$2" | head -n 1; }

# read_manifest <manifest>: sets $name, $data and $metrics.
read_manifest() {
	name=$(argument name "$1")
	data=$(argument data-dir "$1")
	metrics=$(argument listen-metrics-urls "$1" | sed 's/,.*//')
	case $data in /?*) ;; *) quoin_fail "$manifest names no data directory" ;; esac
}

# put_manifest <file>: at once, because the kubelet reads whatever it finds there.
put_manifest() {
	cp "$1" /etc/kubernetes/etcd.yaml.quoin-part && chmod 0600 /etc/kubernetes/etcd.yaml.quoin-part &&
		sync /etc/kubernetes/etcd.yaml.quoin-part && mv -f /etc/kubernetes/etcd.yaml.quoin-part "$manifest" && sync "${manifest%/*}" ||
		quoin_fail "$manifest cannot be written"
}

# works: an etcd works on the data, whoever started it; sets $proc to where the kernel tells of it.
works() {
	for comm in /proc/[0-9]*/comm; do
		read -r process 2>/dev/null <"$comm" || continue
		[ "$process" = etcd ] || continue
		proc=${comm%/comm}
		tr '\0' '\n' 2>/dev/null <"$proc/cmdline" | grep -qxF -- "--data-dir=$data" || continue
		case $(sed -n 's/^State:[[:space:]]*\(.\).*/\1/p' "$proc/status" 2>/dev/null) in '' | Z | X) ;; *) return 0 ;; esac
	done
	return 1
}

# stopped: no etcd works on the data.
stopped() { ! works; }

# readiness prints the status with which etcd says whether it serves reads that a quorum agreed on; nothing when nobody answers. The
# alarm CORRUPT of anybody, also of a member that is gone, says nothing about that, and it stays among the data.
readiness() {
	check='/readyz?exclude=data_corruption'
	if command -v curl >/dev/null; then
		curl -q --noproxy '*' --silent --max-time 5 --output /dev/null --write-out '%{http_code}' "$metrics$check"
	else
		at=${metrics#http://}
		address=${at%:*}
		address=${address#[}
		# shellcheck disable=SC2016 # the inner shell expands it
		timeout 5 bash -c 'exec 3<>"/dev/tcp/$1/$2" && printf "GET %s HTTP/1.0\r\n\r\n" "$3" >&3 && read -r _ code _ <&3 && echo "$code"' readiness "${address%]}" "${at##*:}" "$check" 2>/dev/null
	fi
}

# askable: there is something to ask etcd with.
askable() { command -v curl >/dev/null || command -v bash >/dev/null; }

ready() {
	askable || quoin_fail "neither curl nor bash is installed on this host, and etcd cannot be asked without; install one"
	[ "$(readiness)" = 200 ]
}
