# Copyright The Quoin Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Prints what this host does not reach, and changes nothing. It needs bash, timeout, ip and getent; which of them are
# missing is printed as well.
export LC_ALL=C
for tool in bash timeout ip getent; do
	command -v "$tool" >/dev/null || echo "lacks $tool"
done

# route <address>
route() {
	command -v ip >/dev/null || return 0
	ip route get "$1" >/dev/null 2>&1 || echo "noroute $1"
}

# port <address> <port>: refused by who is there, or no answer. The words are those of the C library.
port() {
	command -v bash >/dev/null && command -v timeout >/dev/null || return 0
	said=$(timeout 3 bash -c ': <>"/dev/tcp/$1/$2"' port "$1" "$2" 2>&1 </dev/null) && return 0
	case $said in
	*'onnection refused'*) echo "refused $1 $2" ;;
	*) echo "silent $1 $2" ;;
	esac
}

# named <name> <port>: a name is resolved before its port is asked.
named() {
	if command -v getent >/dev/null && command -v timeout >/dev/null; then
		timeout 5 getent ahosts "$1" >/dev/null 2>&1 </dev/null || {
			echo "unresolved $1"
			return
		}
	fi
	port "$1" "$2"
}

