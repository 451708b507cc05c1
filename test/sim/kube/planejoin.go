// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/quoin-dev/cluster-api-provider-quoin/test/sim/machine"
)

// joinControlPlane makes another machine of a control plane, in the order of kubeadm 1.33 and later: the kubelet runs
// before the member is announced, and the API server of the machine answers only when the member votes.
func (c *Cluster) joinControlPlane(ctx context.Context, p *machine.Process, config *joinConfig) int {
	h := &planeHost{Cluster: c, plane: c.options.ControlPlane, p: p, verb: "join", skip: config.SkipPhases, patches: config.Patches.Directory}
	if h.plane == nil {
		return p.Fail("simulated: no control plane is attached to this cluster")
	}
	if err := h.settle(config.NodeRegistration, config.ControlPlane.LocalAPIEndpoint); err != nil {
		fmt.Fprintf(p.Stderr, "error: %v\n", err)
		return 1
	}
	p.Printf("[preflight] Running pre-flight checks\n")
	code := h.run(ctx, []step{
		{"preflight", func(ctx context.Context) error {
			if code := preflight(p, true); code != 0 {
				return errors.New("[preflight] see above")
			}
			if err := h.discover(ctx, config); err != nil {
				return err
			}
			return h.preflight()
		}},
		{"control-plane-prepare", func(context.Context) error {
			c.joined(p.Machine)
			if err := h.readAuthorities(); err != nil {
				return err
			}
			if err := h.certificates(); err != nil {
				return err
			}
			if err := h.kubeconfigs(false); err != nil {
				return err
			}
			return h.controlPlaneManifests()
		}},
		{"check-etcd", h.checkEtcd},
		{"kubelet-start", func(ctx context.Context) error { return h.startBootstrappingKubelet(ctx, config) }},
		{"etcd-join", h.joinEtcd},
		{"tls-bootstrap", func(context.Context) error { return waitForCertificate(p) }},
		{"mark-control-plane", func(ctx context.Context) error { return h.mark(ctx, config.NodeRegistration) }},
		{"wait-control-plane", h.waitForAPIServer},
	})
	if code == 0 {
		p.Printf("\nThis node has joined the cluster and a new control plane instance was created:\n\n* Certificate signing request was sent to apiserver and approval was received.\n* The Kubelet was informed of the new secure connection details.\n* Control plane label and taint were applied to the new node.\n* The Kubernetes control plane instances scaled up.\n* A new etcd member was added to the local/stacked etcd cluster.\n\n")
	}
	return code
}

// discover reads the configuration of the cluster with the token, as only one can whom the API server lets in.
func (h *planeHost) discover(ctx context.Context, config *joinConfig) error {
	token := config.Discovery.BootstrapToken
	if token == nil {
		return errors.New("simulated: a control plane is joined with a bootstrap token")
	}
	if token.APIServerEndpoint != h.plane.endpoint() {
		return fmt.Errorf("couldn't validate the identity of the API Server: Get \"https://%s/api/v1/namespaces/kube-public/configmaps/cluster-info\": dial tcp %[1]s: i/o timeout", token.APIServerEndpoint)
	}
	var content string
	err := h.patient(ctx, "couldn't validate the identity of the API Server", func(ctx context.Context) error {
		admin, err := h.plane.Config()
		if err != nil {
			return err
		}
		ca, err := parsePublic(admin.CAData)
		if err != nil {
			return err
		}
		if !token.Unsafe && !slices.Contains(token.CACertHashes, ca.pin()) {
			return fmt.Errorf("cluster CA found in cluster-info ConfigMap is invalid: none of the public keys %q are pinned", ca.pin())
		}
		client, err := kubernetes.NewForConfig(&rest.Config{Host: admin.Host, BearerToken: token.Token, QPS: -1, TLSClientConfig: rest.TLSClientConfig{CAData: admin.CAData}})
		if err != nil {
			return err
		}
		read, err := client.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(ctx, "kubeadm-config", metav1.GetOptions{})
		if err == nil {
			content = read.Data["ClusterConfiguration"]
		}
		return err
	})
	if err != nil {
		return err
	}
	h.cluster, err = parseCluster([]byte(content))
	return err
}

// startBootstrappingKubelet starts the kubelet with the token, unless a living node has the name.
func (h *planeHost) startBootstrappingKubelet(ctx context.Context, config *joinConfig) error {
	if err := put(h.p, bootstrapConfig, kubeconfig("tls-bootstrap-token-user", "token: "+config.Discovery.BootstrapToken.Token), 0o600); err != nil {
		return err
	}
	err := h.api(ctx, "cannot get Node "+strconv.Quote(h.name), func(ctx context.Context, client kubernetes.Interface) error {
		node, err := client.CoreV1().Nodes().Get(ctx, h.name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err == nil && nodeReady(node) == corev1.ConditionTrue {
			return fmt.Errorf("a Node with name %q and status %q already exists in the cluster. You must delete the existing Node or change the name of this new joining Node", h.name, corev1.NodeReady)
		}
		return err
	})
	if err != nil {
		return err
	}
	return startKubelet(h.p, h.name, config.NodeRegistration.KubeletExtraArgs)
}

// waitForCertificate waits until the kubelet has one, and takes the token away.
func waitForCertificate(p *machine.Process) error {
	for wait := 0; ; wait++ {
		if _, err := p.Stat(kubeletKubeconf); err == nil {
			return p.Remove(bootstrapConfig)
		}
		if wait == 1500 {
			return errors.New("error while waiting for the kubelet to perform the TLS bootstrap: timed out")
		}
		p.Sleep(20 * time.Millisecond)
	}
}

// etcdClient reaches the members that the etcd pods in the API server tell of, and those that etcd knows then.
func (h *planeHost) etcdClient(ctx context.Context) (*clientv3.Client, error) {
	var endpoints []string
	err := h.api(ctx, "could not retrieve the list of etcd endpoints", func(ctx context.Context, client kubernetes.Interface) error {
		endpoints = nil
		pods, err := client.CoreV1().Pods(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{LabelSelector: "component=etcd,tier=control-plane"})
		if err != nil {
			return err
		}
		for _, pod := range pods.Items {
			if url := pod.Annotations[etcdURLAnnotation]; url != "" {
				endpoints = append(endpoints, url)
			}
		}
		if len(endpoints) == 0 {
			return errors.New("there are no etcd pods")
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	credentials, err := h.etcdCA.client(subject{name: "kube-etcd-healthcheck-client"})
	if err != nil {
		return nil, err
	}
	client, err := clientv3.New(clientv3.Config{
		Context: ctx, Endpoints: endpoints, TLS: credentials, Logger: zap.NewNop(),
		DialOptions: []grpc.DialOption{grpc.WithContextDialer(h.plane.dialEtcd)},
	})
	if err != nil {
		return nil, err
	}
	bounded, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if err := client.Sync(bounded); err != nil {
		_ = client.Close()
		return nil, fmt.Errorf("error syncing endpoints with etcd: %w", err)
	}
	return client, nil
}

// dialEtcd connects with a member by the address of its machine, as from another machine.
func (c *ControlPlane) dialEtcd(ctx context.Context, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	member := c.byIP[host]
	c.mu.Unlock()
	number, err := strconv.Atoi(port)
	if err != nil || member == nil {
		return nil, fmt.Errorf("dial tcp %s: connect: no route to host", address)
	}
	var dialer net.Dialer
	return dialer.DialContext(ctx, "tcp", member.address(number))
}

// checkEtcd refuses to join a cluster that is unwell: until 1.35 every member must answer, since then most of them.
func (h *planeHost) checkEtcd(ctx context.Context) error {
	client, err := h.etcdClient(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	return h.health(ctx, client)
}

func (h *planeHost) health(ctx context.Context, client *clientv3.Client) error {
	running, err := version.ParseSemantic(versionOf(h.p))
	if err != nil {
		return err
	}
	all := running.LessThan(version.MustParseSemantic("v1.36.0-0"))
	healthy, endpoints := 0, client.Endpoints()
	var last error
	for _, endpoint := range endpoints {
		err := h.patient(ctx, "the status of member "+endpoint+" is not available", func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
			defer cancel()
			_, err := client.Status(ctx, endpoint)
			return err
		})
		switch {
		case err == nil:
			healthy++
		case all:
			return fmt.Errorf("etcd cluster is not healthy: %w", err)
		default:
			last = err
		}
	}
	if healthy <= len(endpoints)/2 {
		return fmt.Errorf("etcd cluster is not healthy: %w", last)
	}
	return nil
}

// joinEtcd announces a learner, lets the kubelet start it, and waits until it votes.
func (h *planeHost) joinEtcd(ctx context.Context) error {
	if err := h.p.MkdirAll(h.cluster.dataDir(), 0o700); err != nil {
		return err
	}
	client, err := h.etcdClient(ctx)
	if err != nil {
		return fmt.Errorf("error creating local etcd static pod manifest file: %w", err)
	}
	defer func() { _ = client.Close() }()
	members, err := h.addMember(ctx, client)
	if err != nil {
		return fmt.Errorf("error creating local etcd static pod manifest file: %w", err)
	}
	h.p.Printf("[etcd] Announced new etcd member joining to the existing etcd cluster\n")
	h.phase("etcd-added")
	if err := h.etcdManifest(h.initialCluster(members)); err != nil {
		return err
	}
	h.phase("etcd-started")
	if err := h.promote(ctx, client); err != nil {
		return fmt.Errorf("error creating local etcd static pod manifest file: %w", err)
	}
	h.phase("etcd-promoted")
	// From here on its own member is one of those that must answer.
	if own := h.url(etcdClientPort); !slices.Contains(client.Endpoints(), own) {
		client.SetEndpoints(append(client.Endpoints(), own)...)
	}
	h.p.Printf("[etcd] Waiting for the new etcd member to join the cluster. This can take up to 40s\n")
	return h.health(ctx, client)
}

// own finds the member with this machine's peer address.
func (h *planeHost) own(members []*pb.Member) *pb.Member {
	for _, member := range members {
		if slices.Contains(member.PeerURLs, h.peerURL()) {
			return member
		}
	}
	return nil
}

// addMember adds a learner, unless a member has the peer address already: then it is taken for this one.
func (h *planeHost) addMember(ctx context.Context, client *clientv3.Client) (members []*pb.Member, err error) {
	err = h.patient(ctx, "adding the etcd member", func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		list, err := client.MemberList(ctx)
		if err != nil {
			return err
		}
		if members = list.Members; h.own(members) != nil {
			return nil
		}
		added, err := client.MemberAddAsLearner(ctx, []string{h.peerURL()})
		if err == nil {
			members = added.Members
		}
		return err
	})
	return members, err
}

func (h *planeHost) initialCluster(members []*pb.Member) []string {
	var cluster []string
	for _, member := range members {
		name := member.Name
		switch {
		case member.PeerURLs[0] == h.peerURL():
			name = h.name
		case name == "":
			name = strconv.FormatUint(member.ID, 16)
		}
		cluster = append(cluster, name+"="+member.PeerURLs[0])
	}
	return cluster
}

// promote waits until the learner has started, and then until it has caught up, which is when etcd lets it vote.
func (h *planeHost) promote(ctx context.Context, client *clientv3.Client) error {
	return h.patient(ctx, "promoting the etcd learner", func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		list, err := client.MemberList(ctx)
		if err != nil {
			return err
		}
		member := h.own(list.Members)
		switch {
		case member == nil:
			return errors.New("no member id found for peer " + h.peerURL())
		case !member.IsLearner:
			return nil
		case member.Name == "":
			return fmt.Errorf("the etcd member %x is not started", member.ID)
		}
		_, err = client.MemberPromote(ctx, member.ID)
		return err
	})
}

// removeMember is what kubeadm reset does for the other members. That it cannot be done is only said.
func (c *Cluster) removeMember(ctx context.Context, p *machine.Process) {
	h := &planeHost{Cluster: c, plane: c.options.ControlPlane, p: p, verb: "reset", cluster: &clusterConfig{CertificatesDir: etcKubernetes + "/pki"}}
	err := h.settle(nodeRegistration{}, endpointConfig{})
	if err == nil {
		err = h.readAuthorities()
	}
	if err == nil {
		err = h.leaveEtcd(ctx)
	}
	if err != nil {
		p.Printf("[reset] Failed to remove etcd member: %v, please manually remove this etcd member using etcdctl\n", err)
	}
}

func (h *planeHost) leaveEtcd(ctx context.Context) error {
	client, err := h.etcdClient(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	return h.patient(ctx, "removing the etcd member", func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		list, err := client.MemberList(ctx)
		if err != nil {
			return err
		}
		member := h.own(list.Members)
		if member == nil || len(list.Members) == 1 {
			return nil
		}
		_, err = client.MemberRemove(ctx, member.ID)
		return err
	})
}
