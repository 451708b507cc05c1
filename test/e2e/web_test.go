//go:build e2e

// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/quoin-dev/cluster-api-provider-quoin/test/e2e/lab"
)

// web is a user's workload: two pods on two nodes, behind a Service.
const web = `
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
  namespace: default
spec:
  replicas: 2
  selector:
    matchLabels: {app: web}
  template:
    metadata:
      labels: {app: web}
    spec:
      affinity:
        podAntiAffinity:
          requiredDuringSchedulingIgnoredDuringExecution:
          - topologyKey: kubernetes.io/hostname
            labelSelector:
              matchLabels: {app: web}
      terminationGracePeriodSeconds: 20
      containers:
      - name: web
        image: quoin.test/webserver:v1
        imagePullPolicy: Never
        # Requests come until every kube-proxy has heard that the pod is on its way out.
        lifecycle:
          preStop:
            sleep: {seconds: 5}
        env:
        - name: NODE_NAME
          valueFrom:
            fieldRef: {fieldPath: spec.nodeName}
        ports:
        - containerPort: 8080
        readinessProbe:
          httpGet: {path: /healthz, port: 8080}
          periodSeconds: 2
---
apiVersion: v1
kind: Service
metadata:
  name: web
  namespace: default
spec:
  selector: {app: web}
  ports:
  - port: 80
    targetPort: 8080
`

// budget is a PodDisruptionBudget for web.
func budget(minAvailable int) string {
	return fmt.Sprintf(`
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: web
  namespace: default
spec:
  minAvailable: %d
  selector:
    matchLabels: {app: web}
`, minAvailable)
}

// expectWeb asks the Service from each worker until both pods have answered there, so pods are reached across nodes.
func expectWeb(ctx context.Context, cluster *lab.Cluster) {
	GinkgoHelper()
	service := &corev1.Service{}
	Expect(cluster.Client.Get(ctx, client.ObjectKey{Namespace: "default", Name: "web"}, service)).To(Succeed())
	var placed map[string]string
	Eventually(func(ctx context.Context) (map[string]string, error) {
		var err error
		placed, err = readyPods(ctx, cluster)
		return placed, err
	}).WithContext(ctx).WithTimeout(2*time.Minute).Should(HaveLen(2), "ready pods of web, by node")
	for node := range placed {
		host := need(the.lab.Host(node))
		Eventually(func(ctx context.Context) ([]string, error) {
			return answering(ctx, host, service.Spec.ClusterIP, placed)
		}).WithContext(ctx).WithTimeout(time.Minute).Should(HaveLen(2), "nodes whose pod answers on %s", node)
	}
}

// readyPods are web's pods by node.
func readyPods(ctx context.Context, cluster *lab.Cluster) (map[string]string, error) {
	pods := &corev1.PodList{}
	if err := cluster.Client.List(ctx, pods, client.InNamespace("default"), client.MatchingLabels{"app": "web"}); err != nil {
		return nil, err
	}
	placed := map[string]string{}
	for _, pod := range pods.Items {
		for _, condition := range pod.Status.Conditions {
			if condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue && pod.DeletionTimestamp == nil {
				placed[pod.Spec.NodeName] = pod.Name
			}
		}
	}
	return placed, nil
}

// answering asks the Service from a host several times, as a client on that node would, and tells which nodes answered.
func answering(ctx context.Context, host *lab.Host, address string, placed map[string]string) ([]string, error) {
	out, err := the.lab.OnHost(ctx, host, fmt.Sprintf("for i in $(seq 20); do curl --silent --max-time 2 http://%s/; done | sort -u", address))
	if err != nil {
		return nil, err
	}
	var nodes []string
	for node, pod := range placed {
		if strings.Contains(out, pod) {
			nodes = append(nodes, node)
		}
	}
	return nodes, nil
}
