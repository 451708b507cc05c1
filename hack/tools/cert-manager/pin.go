// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package certmanager pins the cert-manager whose CRDs the test repositories carry. Nothing is built from it; the
// import keeps the module in go.mod when that is tidied.
package certmanager

import _ "github.com/cert-manager/cert-manager/pkg/apis/certmanager" // see the package comment
