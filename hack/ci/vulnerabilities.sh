#!/usr/bin/env bash
# Copyright The Quoin Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Fails when the code calls what a database of vulnerabilities names. Nothing is
# asked over the network: the database is a folder in the form of vuln.go.dev,
# such as a site mirrors it.
#
#   VULNDB=/srv/vulndb hack/ci/vulnerabilities.sh [package...]
set -euo pipefail
# shellcheck source=hack/lib/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib/common.sh"

[[ -n ${VULNDB:-} ]] || die "VULNDB is missing: the folder of a database, with index/modules.json and ID/*.json in it"
[[ -f $VULNDB/index/modules.json ]] || die "VULNDB=$VULNDB is no database: it has no index/modules.json"
VULNDB=$(cd "$VULNDB" && pwd)
cd "$QUOIN_ROOT"
[[ $# -gt 0 ]] || set -- ./...
exec "$(hack/tools/build.sh govulncheck)" -db "file://$VULNDB" "$@"
