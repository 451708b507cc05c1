#!/usr/bin/env bash
# Copyright The Quoin Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Generates CRDs, roles and webhook configurations from the markers in the
# code. Each provider gets the roles of its own controllers and webhooks only.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

generator=$(hack/tools/build.sh controller-gen)

# provider <name> <API packages, parted by ;> <code...>
provider() {
    local name=$1 api=$2 paths=() path
    shift 2
    for path in "$@" ./internal/manager/...; do paths+=("paths=$path"); done
    "$generator" crd "paths=$api" "output:crd:dir=config/crd/$name/bases"
    "$generator" rbac:roleName=manager-role webhook "${paths[@]}" \
        "output:rbac:dir=config/$name-quoin" "output:webhook:dir=config/$name-quoin"
}

provider infrastructure ./api/infrastructure/... \
    ./controllers/quoinhost/... ./controllers/quoinmachine/... ./controllers/quoinmachinetemplate/... ./controllers/quoincluster/... ./controllers/rolloutpolicy/... ./internal/webhooks/infrastructure/...
provider control-plane './api/controlplane/...;./api/quoin/...' \
    ./controllers/quoincontrolplane/... ./controllers/etcdbackup/... ./controllers/preflightcheck/... ./controllers/clusterupgrade/... ./internal/webhooks/controlplane/...

# Rollouts of workers need no control plane of ours.
mv config/crd/{control-plane,infrastructure}/bases/quoin.cluster.x-k8s.io_rolloutpolicies.yaml

# Descriptions taken over from Cluster API name a registry; ours name none.
sed -i -E 's/ \(registry\.[a-z0-9.]+\)//' config/crd/*/bases/*.yaml
