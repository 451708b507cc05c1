// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoincontrolplane

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kerrors "k8s.io/apimachinery/pkg/util/errors"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/secret"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/controllers/quoincontrolplane/observe"
)

// certificateTimeout bounds the reading of one API server's certificate.
const certificateTimeout = 3 * time.Second

// noteCertificates writes down when the certificates of a Machine expire, once for each: Cluster API brings the
// annotation of the KubeadmConfig to the Machine's status. Of kubeadm's certificates, which are made together, the API
// server's is the one that can be seen from outside. All are looked at together, for at most certificateTimeout, and
// what cannot be read is tried again after a while: nothing here is worth holding up a departure.
func (r *Reconciler) noteCertificates(ctx context.Context, o *observe.Observation) error {
	now := r.Clock.Now()
	wanted := map[types.UID]bool{}
	expiries := map[string]*time.Time{}
	var readings sync.WaitGroup
	for name, machine := range o.Machines {
		config, host := o.KubeadmConfigs[name], o.Hosts[name]
		if !lacksExpiry(o, machine) {
			continue
		}
		wanted[machine.UID] = true
		if !r.history.Expiry.Due(o.ControlPlane.UID, machine.UID, now) {
			continue
		}
		expiry := &time.Time{}
		expiries[name] = expiry
		readings.Go(func() {
			read, err := r.certificateExpiry(ctx, o, config, host)
			if err != nil {
				ctrl.LoggerFrom(ctx).V(4).Info("When the certificates expire is not known", "machine", name, "problem", err.Error())
			}
			*expiry = read
			r.history.Expiry.Note(o.ControlPlane.UID, machine.UID, now, err == nil)
		})
	}
	readings.Wait()
	r.history.Expiry.Keep(o.ControlPlane.UID, wanted)
	var failures []error
	for name, expiry := range expiries {
		if expiry.IsZero() {
			continue
		}
		config := o.KubeadmConfigs[name]
		changed := config.DeepCopy()
		metav1.SetMetaDataAnnotation(&changed.ObjectMeta, clusterv1.MachineCertificatesExpiryDateAnnotation, expiry.UTC().
			Format(time.RFC3339))
		if err := client.IgnoreNotFound(r.Client.Patch(ctx, changed, client.MergeFrom(config))); err != nil {
			failures = append(failures, fmt.Errorf("writing down when the certificates of Machine %s expire: %w", name, err))
		}
	}
	return kerrors.NewAggregate(failures)
}

// lacksExpiry reports whether a Machine serves and nobody has written down when its certificates expire.
func lacksExpiry(o *observe.Observation, machine *clusterv1.Machine) bool {
	config := o.KubeadmConfigs[machine.Name]
	if config == nil || o.Hosts[machine.Name] == nil || !machine.Status.NodeRef.IsDefined() ||
		!machine.DeletionTimestamp.IsZero() ||
		!o.Workload.Health[machine.Name].Serving {
		return false
	}
	_, known := config.Annotations[clusterv1.MachineCertificatesExpiryDateAnnotation]
	return !known
}

// certificateExpiry reads the certificate of the API server on a host, and believes it only if the cluster's authority
// signed it.
func (r *Reconciler) certificateExpiry(
	ctx context.Context, o *observe.Observation, config *bootstrapv1.KubeadmConfig, host *infrav1.QuoinHost,
) (time.Time, error) {
	authority, err := secret.GetFromNamespacedName(ctx, r.secrets(), util.ObjectKey(o.Cluster), secret.ClusterCA)
	if err != nil {
		return time.Time{}, fmt.Errorf("reading the cluster's authority: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(authority.Data[secret.TLSCrtDataName]) {
		return time.Time{}, errors.New("the cluster's authority holds no certificate")
	}
	ctx, cancel := context.WithTimeout(ctx, certificateTimeout)
	defer cancel()
	connection, err := r.Hosts.DialHost(ctx, host, "tcp",
		net.JoinHostPort("127.0.0.1", strconv.Itoa(apiServerPort(config))))
	if err != nil {
		return time.Time{}, err
	}
	defer func() { _ = connection.Close() }()
	// Each API server of kubeadm answers to this name.
	spoken := tls.Client(connection, &tls.Config{RootCAs: roots, ServerName: "kubernetes", MinVersion: tls.VersionTLS12})
	if err := spoken.HandshakeContext(ctx); err != nil {
		return time.Time{}, err
	}
	return spoken.ConnectionState().PeerCertificates[0].NotAfter, nil
}

func apiServerPort(config *bootstrapv1.KubeadmConfig) int {
	if joined := config.Spec.JoinConfiguration.ControlPlane; joined != nil && joined.LocalAPIEndpoint.BindPort != 0 {
		return int(joined.LocalAPIEndpoint.BindPort)
	}
	if port := config.Spec.InitConfiguration.LocalAPIEndpoint.BindPort; port != 0 {
		return int(port)
	}
	return infrav1.DefaultAPIServerPort
}
