// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package etcdbackup

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/backup"
)

var (
	labels   = []string{"namespace", "name"}
	lastGood = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "quoin_etcd_backup_last_good_timestamp_seconds",
		Help: "When the last snapshot of etcd that is stored and verified was begun, by QuoinControlPlane.",
	}, labels)
	size = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "quoin_etcd_backup_size_bytes", Help: "Size of the last good snapshot as etcd sent it, by QuoinControlPlane.",
	}, labels)
	duration = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "quoin_etcd_backup_duration_seconds", Help: "How long the last snapshot took that was taken by this process, " +
			"by QuoinControlPlane.",
	}, labels)
	attempts = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "quoin_etcd_backup_attempts_total", Help: "Number of attempts to take a snapshot, by QuoinControlPlane and " +
			"outcome (ok or failed).",
	}, append([]string{"outcome"}, labels...))
)

func init() { metrics.Registry.MustRegister(lastGood, size, duration, attempts) }

// observe notes how an attempt went.
func observe(key types.NamespacedName, took time.Duration, err error) {
	outcome := "ok"
	if err != nil {
		outcome = "failed"
	} else {
		duration.WithLabelValues(key.Namespace, key.Name).Set(took.Seconds())
	}
	attempts.WithLabelValues(outcome, key.Namespace, key.Name).Inc()
}

// observeNewest tells of the newest good snapshot, also of one that another process took.
func observeNewest(key types.NamespacedName, newest *backup.Metadata) {
	if newest == nil {
		lastGood.DeleteLabelValues(key.Namespace, key.Name)
		size.DeleteLabelValues(key.Namespace, key.Name)
		return
	}
	lastGood.WithLabelValues(key.Namespace, key.Name).Set(float64(newest.Time.Unix()))
	size.WithLabelValues(key.Namespace, key.Name).Set(float64(newest.Size))
}

func forgetMetrics(key types.NamespacedName) {
	of := prometheus.Labels{"namespace": key.Namespace, "name": key.Name}
	lastGood.DeletePartialMatch(of)
	size.DeletePartialMatch(of)
	duration.DeletePartialMatch(of)
	attempts.DeletePartialMatch(of)
}
