// Pins the cert-manager whose CRDs the test repositories carry. Nothing is built from it, so `go mod tidy` has no
// business here: `go mod download` in this folder checks the module against go.sum.
module github.com/quoin-dev/cluster-api-provider-quoin/hack/tools/cert-manager

go 1.26.0

require github.com/cert-manager/cert-manager v1.21.1
