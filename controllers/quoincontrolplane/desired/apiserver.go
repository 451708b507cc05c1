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

// WatchTermination is within what time such an API server then ends the watches that it serves; 200 a second may end
// at least. Without it watches go on until the kubelet kills the API server when the grace of its pod is over.
var WatchTermination = bootstrapv1.Arg{Name: "shutdown-watch-termination-grace-period", Value: ptr.To("5s")}

// shutdown are the flags that make an API server leave in order.
var shutdown = []bootstrapv1.Arg{ShutdownDelay, WatchTermination}

// DefaultAPIServer gives an API server the flags of a shutdown in order, but for those that the user has set.
func DefaultAPIServer(server *bootstrapv1.APIServer) { defaultTo(server, shutdown) }

// SpareOlder takes those of the flags out of the desired KubeadmConfig of a Machine that the Machine was made without:
// nothing is replaced for what the user did not ask for.
func SpareOlder(controlPlane *controlplanev1.QuoinControlPlane, desired, current *bootstrapv1.KubeadmConfig) {
	server := controlPlane.Spec.KubeadmConfigSpec.ClusterConfiguration.APIServer
	defaultTo(&server, slices.DeleteFunc(slices.Clone(shutdown), func(arg bootstrapv1.Arg) bool {
		return !sets(current.Spec.ClusterConfiguration.APIServer.ExtraArgs, arg.Name)
	}))
	desired.Spec.ClusterConfiguration.APIServer = server
}

func defaultTo(server *bootstrapv1.APIServer, args []bootstrapv1.Arg) {
	user := server.ExtraArgs
	for _, arg := range args {
		if !sets(user, arg.Name) {
			server.ExtraArgs = append(slices.Clone(server.ExtraArgs), arg)
		}
	}
}

func sets(args []bootstrapv1.Arg, name string) bool {
	return slices.ContainsFunc(args, func(arg bootstrapv1.Arg) bool { return arg.Name == name })
}
