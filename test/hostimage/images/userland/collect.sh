#!/bin/sh
# Copyright The Quoin Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Copies programs with every library they need into a folder that becomes an
# image of its own: collect.sh <folder>. Runs in the hosts' root file system.
set -eu
out=$1

# The folders of a merged /usr, before anything is copied through them.
mkdir -p "$out"/usr/bin "$out"/usr/sbin "$out"/usr/lib "$out"/usr/lib64 \
    "$out"/etc "$out"/run "$out"/tmp "$out"/var "$out"/usr/local/bin
ln -s usr/bin "$out/bin"
ln -s usr/sbin "$out/sbin"
ln -s usr/lib "$out/lib"
ln -s usr/lib64 "$out/lib64"
ln -s /run "$out/var/run"

# take copies a file to the same place, links followed.
take() {
    mkdir -p "$out$(dirname "$1")"
    cp -L "$1" "$out$1"
}

# take_linked copies a program or library with what the loader will ask for.
take_linked() {
    take "$1"
    ldd "$1" 2>/dev/null | grep -o '/[^ ]*' | while read -r library; do
        [ -e "$out$library" ] || take "$library"
    done
}

take_linked /usr/sbin/xtables-nft-multi
take_linked /usr/sbin/nft
take_linked /usr/sbin/conntrack
take_linked /bin/ip
# Matches and targets are libraries that iptables opens by name, so the loader
# of the program itself does not list what they need (libm, for statistic).
for module in /usr/lib/*/xtables/*.so; do take_linked "$module"; done

for name in iptables iptables-save iptables-restore ip6tables ip6tables-save ip6tables-restore; do
    ln -s xtables-nft-multi "$out/usr/sbin/$name"
done
take /etc/protocols 2>/dev/null || true
take /etc/services 2>/dev/null || true
echo 'root:x:0:0:root:/:/sbin/nologin' >"$out/etc/passwd"
