// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package desired

import (
	"slices"

	"k8s.io/utils/ptr"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
)

// ShutdownDelay is for how long an API server that is asked to end goes on serving after it has left the endpoints of
// the Service kubernetes, so that everybody learns of that before it refuses connections: kube-proxy takes a second,
// and HAProxy's health check, as it is by default, three times two. It is well below the grace of the pod, which is
// half a minute.
var ShutdownDelay = bootstrapv1.Arg{Name: "shutdown-delay-duration", Value: ptr.To("8s")}

// DefaultAPIServer gives an API server the delay, unless the user did.
func DefaultAPIServer(server *bootstrapv1.APIServer) {
	if !delaysShutdown(*server) {
		server.ExtraArgs = append(slices.Clone(server.ExtraArgs), ShutdownDelay)
	}
}

func delaysShutdown(server bootstrapv1.APIServer) bool {
	return slices.ContainsFunc(server.ExtraArgs, func(arg bootstrapv1.Arg) bool { return arg.Name == ShutdownDelay.Name })
}

// SpareOlder takes the default out of the desired KubeadmConfig of a Machine that was made without it: nothing is
// replaced for what the user did not ask for.
func SpareOlder(controlPlane *controlplanev1.QuoinControlPlane, desired, current *bootstrapv1.KubeadmConfig) {
	wanted := controlPlane.Spec.KubeadmConfigSpec.ClusterConfiguration.APIServer
	if !delaysShutdown(wanted) && !delaysShutdown(current.Spec.ClusterConfiguration.APIServer) {
		desired.Spec.ClusterConfiguration.APIServer = wanted
	}
}
