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
)

const (
	defaultAPIServerPort = 6443
	// certificateTimeout bounds the look at one API server's certificate.
	certificateTimeout = 3 * time.Second
)

// compareAge tells whether a Machine has to be replaced for its age: because a person set a time after which none of
// those before it stays, or because its certificates run out.
func (s *scope) compareAge(machine *clusterv1.Machine, now time.Time) string {
	rollout := s.plane.Spec.Rollout
	if after := rollout.After; !after.IsZero() && after.Time.Before(now) && machine.CreationTimestamp.Before(&after) {
		return fmt.Sprintf("Made before %s (spec.rollout.after)", after.UTC().Format(time.RFC3339))
	}
	expiry := machine.Status.CertificatesExpiryDate
	if days := rollout.Before.CertificatesExpiryDays; days != nil && !expiry.IsZero() && now.AddDate(0, 0, int(*days)).
		After(expiry.Time) {
		return fmt.Sprintf("Certificates expire at %s, within %d days", expiry.UTC().Format(time.RFC3339), *days)
	}
	return ""
}

// noteCertificates writes down when the certificates of a Machine expire, once for each: Cluster API brings the
// annotation of the KubeadmConfig to the Machine's status. Of kubeadm's certificates, which are made together, the API
// server's is the one that can be seen from outside. All are looked at together, for at most certificateTimeout, and
// what cannot be read is tried again after a while: nothing here is worth holding up a departure.
func (r *Reconciler) noteCertificates(ctx context.Context, s *scope) error {
	now := s.clock.Now()
	wanted := map[types.UID]bool{}
	expiries := map[string]*time.Time{}
	var looks sync.WaitGroup
	for name, machine := range s.machines {
		config, host := s.configs[name], s.hosts[name]
		if !s.lacksExpiry(machine) {
			continue
		}
		wanted[machine.UID] = true
		if !r.history.Expiry.Due(s.plane.UID, machine.UID, now) {
			continue
		}
		expiry := &time.Time{}
		expiries[name] = expiry
		looks.Go(func() {
			read, err := r.certificateExpiry(ctx, s, config, host)
			if err != nil {
				ctrl.LoggerFrom(ctx).V(4).Info("When the certificates expire is not known", "machine", name, "problem", err.Error())
			}
			*expiry = read
			r.history.Expiry.Note(s.plane.UID, machine.UID, now, err == nil)
		})
	}
	looks.Wait()
	r.history.Expiry.Keep(s.plane.UID, wanted)
	var failures []error
	for name, expiry := range expiries {
		if expiry.IsZero() {
			continue
		}
		config := s.configs[name]
		original := config.DeepCopy()
		metav1.SetMetaDataAnnotation(&config.ObjectMeta, clusterv1.MachineCertificatesExpiryDateAnnotation, expiry.UTC().
			Format(time.RFC3339))
		if err := client.IgnoreNotFound(r.Client.Patch(ctx, config, client.MergeFrom(original))); err != nil {
			failures = append(failures, fmt.Errorf("writing down when the certificates of Machine %s expire: %w", name, err))
		}
	}
	return kerrors.NewAggregate(failures)
}

// lacksExpiry tells that a Machine serves and nobody has written down when its certificates expire.
func (s *scope) lacksExpiry(machine *clusterv1.Machine) bool {
	config := s.configs[machine.Name]
	if config == nil || s.hosts[machine.Name] == nil || !machine.Status.NodeRef.IsDefined() ||
		!machine.DeletionTimestamp.IsZero() ||
		!s.workload.health[machine.Name].serving {
		return false
	}
	_, known := config.Annotations[clusterv1.MachineCertificatesExpiryDateAnnotation]
	return !known
}

// certificateExpiry reads the certificate of the API server on a host, and believes it only if the cluster's authority
// signed it.
func (r *Reconciler) certificateExpiry(
	ctx context.Context, s *scope, config *bootstrapv1.KubeadmConfig, host *infrav1.QuoinHost,
) (time.Time, error) {
	authority, err := secret.GetFromNamespacedName(ctx, r.secrets(), util.ObjectKey(s.cluster), secret.ClusterCA)
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
	if plane := config.Spec.JoinConfiguration.ControlPlane; plane != nil && plane.LocalAPIEndpoint.BindPort != 0 {
		return int(plane.LocalAPIEndpoint.BindPort)
	}
	if port := config.Spec.InitConfiguration.LocalAPIEndpoint.BindPort; port != 0 {
		return int(port)
	}
	return defaultAPIServerPort
}
