// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/quoin-dev/cluster-api-provider-quoin/test/e2e/insider/report"
)

// insiderFolder on a worker's host holds the program and its report. The program is not in an image, because all images are in the
// bundles, which would have to be built anew for it.
const insiderFolder = "/opt/insider"

// insider is the pod, with what it may do. The image gives nothing but a root directory.
const insider = `
apiVersion: v1
kind: Namespace
metadata: {name: insider}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: insider, namespace: insider}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: insider, namespace: insider}
rules:
- apiGroups: [""]
  resources: [configmaps]
  verbs: [get, patch]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: insider, namespace: insider}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: insider}
subjects:
- {kind: ServiceAccount, name: default, namespace: insider}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: insider, namespace: kube-system}
rules:
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  resourceNames: [kube-scheduler]
  verbs: [get]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: insider, namespace: kube-system}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: insider}
subjects:
- {kind: ServiceAccount, name: default, namespace: insider}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: insider, namespace: insider}
spec:
  selector: {matchLabels: {app: insider}}
  strategy: {type: Recreate}
  template:
    metadata:
      labels: {app: insider}
      annotations: {started: %q}
    spec:
      nodeName: %s
      terminationGracePeriodSeconds: 1
      containers:
      - name: insider
        image: quoin.test/webserver:v1
        imagePullPolicy: Never
        command: [%[3]s/insider, insider, %[3]s/report]
        volumeMounts: [{name: folder, mountPath: %[3]s}]
      volumes: [{name: folder, hostPath: {path: %[3]s}}]
`

// Insider is a client in a pod on a worker, which talks to the API server through the Service kubernetes.
type Insider struct {
	lab  *Lab
	host *Host
}

// Inside starts an Insider, and returns when it has been answered. One that runs begins anew.
func (c *Cluster) Inside(ctx context.Context) (*Insider, error) {
	machines, err := c.Machines(ctx)
	if err != nil {
		return nil, err
	}
	i := &Insider{lab: c.lab}
	for _, machine := range machines {
		if _, controlPlane := machine.Labels[clusterv1.MachineControlPlaneLabel]; !controlPlane && machine.Status.NodeRef.IsDefined() {
			if i.host, err = c.lab.Host(machine.Status.NodeRef.Name); err != nil {
				return nil, err
			}
		}
	}
	if i.host == nil {
		return nil, errors.New("the cluster has no worker for a client")
	}
	if err := i.install(ctx); err != nil {
		return nil, err
	}
	manifests := fmt.Sprintf(insider, time.Now().Format(time.RFC3339Nano), i.host.Name, insiderFolder)
	if err := c.lab.Apply(ctx, c.Kubeconfig(), manifests); err != nil {
		return nil, err
	}
	for begin := time.Now(); ; {
		said, err := i.Report(ctx)
		if err == nil && min(said.Reads.Successes, said.Writes.Successes, said.Schedulers.Successes, said.Names.Successes) > 1 {
			return i, nil
		}
		if time.Since(begin) > 2*time.Minute {
			return nil, fmt.Errorf("the client inside %s gets no answer: %+v (%w)", c.Name, said, err)
		}
		time.Sleep(time.Second)
	}
}

// install builds the program and puts it onto the host.
func (i *Insider) install(ctx context.Context) error {
	program := i.lab.Path("insider")
	if _, err := i.lab.run(ctx, command{name: "go", args: []string{"build", "-trimpath", "-o", program, "./test/e2e/insider"}, env: []string{"CGO_ENABLED=0"}}); err != nil {
		return err
	}
	content, err := os.ReadFile(program)
	if err != nil {
		return err
	}
	// One that runs keeps its file.
	if _, err := i.lab.OnHost(ctx, i.host, "mkdir -p "+insiderFolder+" && rm -f "+insiderFolder+"/*"); err != nil {
		return err
	}
	return i.lab.copyInto(ctx, i.host, insiderFolder+"/insider", content, 0o755)
}

// Report is what the client has seen since it started.
func (i *Insider) Report(ctx context.Context) (report.Report, error) {
	var said report.Report
	out, err := i.lab.OnHost(ctx, i.host, "cat "+insiderFolder+"/report")
	if err == nil {
		err = json.Unmarshal([]byte(strings.TrimSpace(out)), &said)
	}
	return said, err
}

// Stop ends the client.
func (i *Insider) Stop(ctx context.Context, cluster *Cluster) error {
	_, err := i.lab.Kubectl(ctx, cluster.Kubeconfig(), "delete", "namespace", "insider", "--wait=false")
	return err
}
