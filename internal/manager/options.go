// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/feature"
	"sigs.k8s.io/cluster-api/util/flags"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/artifacts"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/async"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/egress"
)

// The providers, as clusterctl knows them.
const (
	Infrastructure = "infrastructure"
	ControlPlane   = "control-plane"
)

// Options are what the flags say. Names, meanings and defaults are those of Cluster API's own managers.
type Options struct {
	Providers []string

	WatchFilter string
	Namespace   string
	SyncPeriod  time.Duration

	LeaderElection LeaderElection

	QuoinHostConcurrency         int
	QuoinMachineConcurrency      int
	QuoinClusterConcurrency      int
	QuoinControlPlaneConcurrency int
	ClusterCacheConcurrency      int

	KubeAPIQPS              float32
	KubeAPIBurst            int
	ClusterCacheClientQPS   float32
	ClusterCacheClientBurst int

	// BackupDirectory is that of volume stores, BackupSpool where a snapshot waits to be stored.
	BackupDirectory, BackupSpool string

	// AllowedNetworks that are connected to at the word of users, in CIDR notation; see package egress.
	AllowedNetworks []string
	// HostOutput in MiB is what is kept at once of the output of commands on hosts and the answers of BMCs.
	HostOutput int
	// BundleKeys of which one has to have signed each bundle.
	BundleKeys []string

	WebhookPort     int
	WebhookCertDir  string
	WebhookCertName string
	WebhookKeyName  string

	HealthAddress       string
	ProfilerAddress     string
	ContentionProfiling bool

	// Diagnostics and TLS, as Cluster API's utility keeps them.
	Serving flags.ManagerOptions

	// Harness is for tests; there are no flags for it.
	Harness Harness
}

// LeaderElection says whether and how managers agree on one of them.
type LeaderElection struct {
	Enabled bool
	// Namespace of the lease; that of the Pod's ServiceAccount when empty.
	Namespace     string
	LeaseDuration time.Duration
	RenewDeadline time.Duration
	RetryPeriod   time.Duration
}

// AddFlags registers the flags.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	fs.StringSliceVar(&o.Providers, "providers", []string{Infrastructure, ControlPlane},
		"The clusterctl providers that this manager serves.")
	fs.StringVar(&o.WatchFilter, "watch-filter", "",
		fmt.Sprintf("Value that the label %s of objects must have to be reconciled. Every object when empty.",
			clusterv1.WatchLabel))
	fs.StringVar(&o.Namespace, "namespace", "",
		"Namespace whose objects are reconciled. Every namespace when empty.")
	fs.DurationVar(&o.SyncPeriod, "sync-period", 10*time.Minute,
		"Interval at which every object is reconciled, changed or not.")

	fs.BoolVar(&o.LeaderElection.Enabled, "leader-elect", false,
		"Make sure that of several managers of the same providers only one reconciles.")
	fs.DurationVar(&o.LeaderElection.LeaseDuration, "leader-elect-lease-duration", time.Minute,
		"Time after which others take over from a leader that they no longer hear of.")
	fs.DurationVar(&o.LeaderElection.RenewDeadline, "leader-elect-renew-deadline", 40*time.Second,
		"Time after which a leader that cannot renew its lease gives up.")
	fs.DurationVar(&o.LeaderElection.RetryPeriod, "leader-elect-retry-period", 5*time.Second,
		"Time between two attempts to get or renew the lease.")

	fs.IntVar(&o.QuoinHostConcurrency, "quoinhost-concurrency", 20, "Number of QuoinHosts to reconcile at once.")
	fs.IntVar(&o.QuoinMachineConcurrency, "quoinmachine-concurrency", 20, "Number of QuoinMachines to reconcile at once.")
	fs.IntVar(&o.QuoinClusterConcurrency, "quoincluster-concurrency", 10, "Number of QuoinClusters to reconcile at once.")
	fs.IntVar(&o.QuoinControlPlaneConcurrency, "quoincontrolplane-concurrency", 10,
		"Number of QuoinControlPlanes to reconcile at once.")
	fs.IntVar(&o.ClusterCacheConcurrency, "clustercache-concurrency", 100,
		"Number of workload clusters to connect to at once.")

	fs.Float32Var(&o.KubeAPIQPS, "kube-api-qps", 100, "Requests per second to the management cluster's API server.")
	fs.IntVar(&o.KubeAPIBurst, "kube-api-burst", 200, "Requests to the management cluster's API server in one burst.")
	fs.Float32Var(&o.ClusterCacheClientQPS, "clustercache-client-qps", 20,
		"Requests per second to each workload cluster's API server.")
	fs.IntVar(&o.ClusterCacheClientBurst, "clustercache-client-burst", 30,
		"Requests to each workload cluster's API server in one burst.")

	fs.StringVar(&o.BackupDirectory, "backup-directory", "",
		"Folder of a volume for the snapshots of control planes whose spec.backup names a volume. Such are refused when "+
			"empty.")
	fs.StringVar(&o.BackupSpool, "backup-spool-directory", "",
		"Folder with room for the largest snapshots, each of which waits there while it is stored. That for temporary "+
			"files when empty.")

	fs.StringSliceVar(&o.AllowedNetworks, egress.Flag, nil,
		"Networks of hosts, bastions, BMCs, servers of bundles, object stores and checks of rollouts, such as 10.1.0.0/16; "+
			"nothing else is connected to. When empty: all but loopback and link-local addresses, those of metadata services "+
			"and, for what cannot be one, Services (by ServiceCIDRs, of Kubernetes 1.33 and later), which only a network "+
			"that lies within such a range allows.")

	fs.IntVar(&o.HostOutput, async.OutputFlag, 256,
		"MiB that are kept at once of what commands on hosts print and BMCs answer. One namespace has at most four fifths "+
			"of it, less where others print much; a command for which there is no room is ended and tried again. The first "+
			"64 KiB of each command and answer need no room.")

	fs.StringSliceVar(&o.BundleKeys, artifacts.KeysFlag, nil,
		"Public keys as in an authorized_keys file: a bundle that none of them signed is refused, whatever keys the "+
			"template names that it comes from. Without any, or with none, the template's keys count alone.")

	fs.IntVar(&o.WebhookPort, "webhook-port", 9443, "Port of the webhook server.")
	fs.StringVar(&o.WebhookCertDir, "webhook-cert-dir", "/tmp/k8s-webhook-server/serving-certs/",
		"Folder of the webhook server's certificate and key.")
	fs.StringVar(&o.WebhookCertName, "webhook-cert-name", "tls.crt", "Name of the certificate in --webhook-cert-dir.")
	fs.StringVar(&o.WebhookKeyName, "webhook-key-name", "tls.key", "Name of the key in --webhook-cert-dir.")

	fs.StringVar(&o.HealthAddress, "health-addr", ":9440", "Address of /healthz and /readyz.")
	fs.StringVar(&o.ProfilerAddress, "profiler-address", "",
		"Address of a pprof server, such as localhost:6060. None when empty.")
	fs.BoolVar(&o.ContentionProfiling, "contention-profiling", false, "Profile blocking.")

	flags.AddManagerOptions(fs, &o.Serving)
	feature.MutableGates.AddFlag(fs)
}

// Validate tells what is wrong with the options.
func (o *Options) Validate() error {
	if len(o.Providers) == 0 {
		return errors.New("--providers names no provider")
	}
	for _, provider := range o.Providers {
		if provider != Infrastructure && provider != ControlPlane {
			return fmt.Errorf("--providers: there is no provider %q, only %s and %s", provider, Infrastructure, ControlPlane)
		}
	}
	if _, err := egress.Parse(o.AllowedNetworks); err != nil {
		return fmt.Errorf("--%s: %w", egress.Flag, err)
	}
	if o.HostOutput < async.LeastOutput {
		return fmt.Errorf("--%s: %d is less than %d, which the whole output of one command needs", async.OutputFlag,
			o.HostOutput, async.LeastOutput)
	}
	if _, err := artifacts.ParsePublicKeys(o.bundleKeys()); err != nil {
		return fmt.Errorf("--%s: %w", artifacts.KeysFlag, err)
	}
	return nil
}

// bundleKeys of which one has to have signed each bundle. The word none stands for none: clusterctl takes a variable
// whose default is empty for one that is missing.
func (o *Options) bundleKeys() []string {
	if slices.Equal(o.BundleKeys, []string{"none"}) {
		return nil
	}
	return o.BundleKeys
}

// Serves reports whether the manager serves a provider.
func (o *Options) Serves(provider string) bool { return slices.Contains(o.Providers, provider) }

// name of the set of providers, whatever their order: quoin-control-plane-infrastructure.
func (o *Options) name() string {
	served := slices.Clone(o.Providers)
	slices.Sort(served)
	return "quoin-" + strings.Join(slices.Compact(served), "-")
}
