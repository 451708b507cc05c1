// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/egress"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/proxytest"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/secrettest"
)

const passed, failed = quoinv1.RolloutCheckPassed, quoinv1.RolloutCheckFailed

func machine(name string, labels ...string) clusterv1.Machine {
	m := clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}}}
	for i := 0; i < len(labels); i += 2 {
		m.Labels[labels[i]] = labels[i+1]
	}
	m.Status.NodeRef.Name = name
	return m
}

func node(name string, is corev1.ConditionStatus) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: is}}}}
}

func pod(name, on, class string, phase corev1.PodPhase, is corev1.ConditionStatus) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: name},
		Spec: corev1.PodSpec{NodeName: on, PriorityClassName: class},
		Status: corev1.PodStatus{Phase: phase,
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: is}}}}
}

// cluster has pool blue, which is rolled out, pool green and a control plane.
func cluster(objects ...client.Object) *Subject {
	gone := machine("blue-gone", clusterv1.MachineDeploymentNameLabel, "blue")
	gone.DeletionTimestamp = ptr.To(metav1.Now())
	return &Subject{Pool: "blue", Subjects: []string{"blue-1"}, Namespace: "prod",
		Machines: []clusterv1.Machine{machine("blue-1", clusterv1.MachineDeploymentNameLabel, "blue"), gone,
			machine("green-1", clusterv1.MachineDeploymentNameLabel, "green"),
			machine("plane-1", clusterv1.MachineControlPlaneLabel, "")},
		Workload: fake.NewClientBuilder().WithObjects(objects...).Build()}
}

// Proves: S3-10, K-8
func TestOnlyWhatConcernsTheGroupFails(t *testing.T) {
	well := []client.Object{node("blue-1", corev1.ConditionTrue), node("plane-1", corev1.ConditionTrue),
		node("green-1", corev1.ConditionTrue)}
	running, yes, no := corev1.PodRunning, corev1.ConditionTrue, corev1.ConditionFalse
	evicted := pod("dns", "green-1", clusterCritical, corev1.PodFailed, no)
	evicted.OwnerReferences = []metav1.OwnerReference{{Kind: "ReplicaSet", Controller: ptr.To(true)}}
	static := pod("etcd", "plane-1", nodeCritical, corev1.PodFailed, no)
	static.OwnerReferences = []metav1.OwnerReference{{Kind: "Node", Controller: ptr.To(true)}}
	leaving := pod("dns", "green-1", clusterCritical, running, no)
	leaving.DeletionTimestamp, leaving.Finalizers = ptr.To(metav1.Now()), []string{"test/stays"}
	for name, c := range map[string]struct {
		objects []client.Object
		nodes   string
		pods    string
	}{
		"all is well":                        {objects: append(well, pod("proxy", "blue-1", nodeCritical, running, yes))},
		"a Node of the group is not ready":   {objects: []client.Object{node("blue-1", no), well[1]}, nodes: "Node blue-1 is not ready"},
		"a Node of the group is not there":   {objects: well[1:], nodes: "Node blue-1 is not there"},
		"a control plane's is not ready":     {objects: []client.Object{well[0], node("plane-1", corev1.ConditionUnknown)}, nodes: "Node plane-1 is not ready"},
		"another group's is not ready":       {objects: []client.Object{well[0], well[1], node("green-1", no)}},
		"a pod on a Node of the group":       {objects: append(well, pod("proxy", "blue-1", nodeCritical, running, no)), pods: "pod kube-system/proxy on Node blue-1 is not ready"},
		"a pod on a control plane's":         {objects: append(well, pod("proxy", "plane-1", nodeCritical, running, no)), pods: "on Node plane-1 is not ready"},
		"a static pod that failed":           {objects: append(well, static), pods: "pod kube-system/etcd on Node plane-1 is Failed"},
		"a pod on another group's":           {objects: append(well, pod("proxy", "green-1", nodeCritical, running, no))},
		"a pod on a Node that leaves":        {objects: append(well, pod("proxy", "blue-gone", nodeCritical, running, no))},
		"a pod on a Node without a Machine":  {objects: append(well, pod("proxy", "other", nodeCritical, running, no)), pods: "on Node other is not ready"},
		"a pod that is nowhere":              {objects: append(well, pod("dns", "", clusterCritical, corev1.PodPending, no)), pods: "pod kube-system/dns is Pending"},
		"the Cluster's pod on another Node":  {objects: append(well, pod("dns", "green-1", clusterCritical, running, no)), pods: "pod kube-system/dns on Node green-1 is not ready"},
		"what is evicted and made elsewhere": {objects: append(well, evicted)},
		"what is being deleted":              {objects: append(well, leaving)},
		"what is done":                       {objects: append(well, pod("job", "blue-1", nodeCritical, corev1.PodSucceeded, no))},
		"what is not critical":               {objects: append(well, pod("shop", "blue-1", "", running, no))},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			results := Look(t.Context(), cluster(c.objects...))
			for i, want := range []string{c.nodes, c.pods} {
				if want == "" {
					g.Expect(results[i].Status).To(Equal(passed), results[i].Message)
					continue
				}
				g.Expect(results[i].Status).To(Equal(failed))
				g.Expect(results[i].Message).To(ContainSubstring(want))
			}
		})
	}
}

// A Machine that is to be proved and lost its Node since is not.
// What is found on a Machine that was looked at is held against it, and what a person's check answers where nothing else
// is wrong; the rest against none.
//
// Proves: K-8
func TestWhatIsHeldAgainstNewMachines(t *testing.T) {
	shop := func(status int, body string) *quoinv1.RolloutHTTPCheck {
		ill := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = w.Write([]byte(body))
		}))
		t.Cleanup(ill.Close)
		return &quoinv1.RolloutHTTPCheck{URL: ill.URL}
	}
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	number := func(url string) *quoinv1.RolloutPrometheusCheck {
		return &quoinv1.RolloutPrometheusCheck{URL: url, Query: "up", Max: "1"}
	}
	errors := `{"status":"success","data":{"resultType":"scalar","result":[1,"7"]}}`
	running, yes, no := corev1.PodRunning, corev1.ConditionTrue, corev1.ConditionFalse
	for name, c := range map[string]struct {
		new, plane corev1.ConditionStatus
		pod        *corev1.Pod
		check      quoinv1.RolloutCheck
		want       []string
	}{
		"its Node":                        {new: no, plane: yes, want: []string{"Nodes"}},
		"a pod on it":                     {new: yes, plane: yes, pod: pod("proxy", "blue-1", nodeCritical, running, no), want: []string{"Pods"}},
		"its Node and another":            {new: no, plane: no, want: []string{"Nodes"}},
		"the control plane":               {new: yes, plane: no},
		"a pod elsewhere":                 {new: yes, plane: yes, pod: pod("dns", "green-1", clusterCritical, running, no)},
		"a pod without a Node":            {new: yes, plane: yes, pod: pod("dns", "", clusterCritical, corev1.PodPending, no)},
		"a page":                          {new: yes, plane: yes, check: quoinv1.RolloutCheck{HTTP: shop(503, "")}, want: []string{"of mine"}},
		"a page beside the control plane": {new: yes, plane: no, check: quoinv1.RolloutCheck{HTTP: shop(503, "")}},
		"a number": {new: yes, plane: yes, check: quoinv1.RolloutCheck{Prometheus: number(shop(200, errors).URL)},
			want: []string{"of mine"}},
		"a server that is gone": {new: yes, plane: yes,
			check: quoinv1.RolloutCheck{HTTP: &quoinv1.RolloutHTTPCheck{URL: gone.URL}}},
		"a Prometheus that is gone": {new: yes, plane: yes, check: quoinv1.RolloutCheck{Prometheus: number(gone.URL)}},
		"a Prometheus that fails": {new: yes, plane: yes,
			check: quoinv1.RolloutCheck{Prometheus: number(shop(503, "").URL)}},
	} {
		t.Run(name, func(t *testing.T) {
			objects := []client.Object{node("blue-1", c.new), node("plane-1", c.plane), node("green-1", yes)}
			if c.pod != nil {
				objects = append(objects, c.pod)
			}
			subject := cluster(objects...)
			if c.check.Name = "of mine"; c.check.HTTP != nil || c.check.Prometheus != nil {
				subject.Checks = []quoinv1.RolloutCheck{c.check}
			}
			g, fails, held := NewWithT(t), 0, []string(nil)
			for _, result := range Look(t.Context(), subject) {
				if result.Status == failed {
					fails++
				}
				if len(result.Machines) > 0 {
					g.Expect(result.Machines).To(Equal([]string{"blue-1"}))
					held = append(held, result.Name)
				}
			}
			g.Expect(fails).To(BeNumerically(">", 0))
			g.Expect(held).To(Equal(c.want))
		})
	}
	blind := cluster(node("blue-1", no))
	blind.Workload = interceptor.NewClient(blind.Workload.(client.WithWatch), interceptor.Funcs{List: func(
		context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
		return fmt.Errorf("etcd has no leader")
	}})
	blind.Checks = []quoinv1.RolloutCheck{{Name: "of mine", HTTP: shop(503, "")}}
	for _, result := range Look(t.Context(), blind) {
		NewWithT(t).Expect(result.Machines).To(BeEmpty(), result.Name)
	}
}

func TestAMachineWithoutANodeFails(t *testing.T) {
	g := NewWithT(t)
	s := cluster(node("plane-1", corev1.ConditionTrue))
	s.Machines[0].Status.NodeRef.Name = ""
	g.Expect(Look(t.Context(), s)[0].Message).To(ContainSubstring("Machine blue-1 has no Node"))
}

// What cannot be looked at is not in order, and what is wrong a thousand times fits in a status.
func TestLooksAreBounded(t *testing.T) {
	g := NewWithT(t)
	s := cluster(node("plane-1", corev1.ConditionTrue))
	for i := range 1000 {
		s.Machines = append(s.Machines, machine(fmt.Sprintf("blue-%03d", i), clusterv1.MachineDeploymentNameLabel, "blue"))
	}
	result := Look(t.Context(), s)[0]
	g.Expect(result.Message).To(HaveSuffix(", and 991 more"))
	g.Expect(len(result.Message)).To(BeNumerically("<=", mostMessage))
	s.Workload = interceptor.NewClient(fake.NewFakeClient(), interceptor.Funcs{List: func(_ context.Context,
		_ client.WithWatch, list client.ObjectList, _ ...client.ListOption) error {
		if _, is := list.(*corev1.PodList); is {
			panic("oops")
		}
		return errors.New("connection refused")
	}})
	results := Look(t.Context(), s)
	g.Expect(results[0]).To(And(HaveField("Status", failed), HaveField("Message", "list the Nodes: connection refused")))
	g.Expect(results[1]).To(And(HaveField("Status", failed), HaveField("Message", "the check panicked: oops")))
}

func TestACheckThatDoesNotAnswerFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		end := make(chan struct{})
		result, _ := run(t.Context(), check{"slow", func(context.Context) (string, error) { <-end; return "", nil }})
		NewWithT(t).Expect(result.Message).To(Equal("no answer within 20s"))
		close(end)
		synctest.Wait()
	})
}

// Lists are read in parts.
func TestListsAreReadInParts(t *testing.T) {
	g := NewWithT(t)
	s := cluster()
	asked := 0
	s.Workload = interceptor.NewClient(fake.NewFakeClient(), interceptor.Funcs{List: func(_ context.Context,
		_ client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
		nodes := list.(*corev1.NodeList)
		asked++
		by := (&client.ListOptions{}).ApplyOptions(options)
		g.Expect(by.Limit).To(BeEquivalentTo(500))
		if by.Continue == "" {
			nodes.Continue, nodes.Items = "more", []corev1.Node{*node("plane-1", corev1.ConditionTrue)}
			return nil
		}
		nodes.Items = []corev1.Node{*node("blue-1", corev1.ConditionTrue)}
		return nil
	}})
	message, err := s.lookAtNodes(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(message).To(Equal("2 Nodes are ready"))
	g.Expect(asked).To(Equal(2))
}

// server answers by path, and remembers who asked.
func server(t *testing.T, tls bool) (*httptest.Server, *[]*http.Request) {
	asked := &[]*http.Request{}
	handler := http.NewServeMux()
	handler.HandleFunc("/healthz", func(w http.ResponseWriter, r *http.Request) {
		*asked = append(*asked, r)
		_, _ = w.Write([]byte("all is well"))
	})
	handler.HandleFunc("/moved", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/healthz", http.StatusFound) })
	handler.HandleFunc("/broken", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
	handler.HandleFunc("/long", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(strings.Repeat("x", mostBody) + "all is well"))
	})
	handler.HandleFunc("/api/v1/query", func(w http.ResponseWriter, r *http.Request) {
		*asked = append(*asked, r)
		if query := r.URL.Query().Get("query"); strings.HasPrefix(query, "{") {
			_, _ = w.Write([]byte(query))
			return
		}
		w.WriteHeader(http.StatusBadRequest)
		_, _ = w.Write([]byte(`{"status":"error","errorType":"bad_data","error":"parse error"}`))
	})
	made := httptest.NewUnstartedServer(handler)
	if tls {
		made.StartTLS()
	} else {
		made.Start()
	}
	t.Cleanup(made.Close)
	return made, asked
}

func TestHTTPChecks(t *testing.T) {
	to, asked := server(t, false)
	s := cluster()
	for name, c := range map[string]struct {
		check quoinv1.RolloutHTTPCheck
		fails string
	}{
		"it answers":                   {quoinv1.RolloutHTTPCheck{URL: to.URL + "/healthz", BodyContains: "is well"}, ""},
		"another status":               {quoinv1.RolloutHTTPCheck{URL: to.URL + "/broken"}, "the status is 503 and should be 200"},
		"the status that is expected":  {quoinv1.RolloutHTTPCheck{URL: to.URL + "/broken", ExpectedStatus: ptr.To[int32](503)}, ""},
		"another text":                 {quoinv1.RolloutHTTPCheck{URL: to.URL + "/healthz", BodyContains: "ill"}, "does not contain"},
		"a redirect is an answer":      {quoinv1.RolloutHTTPCheck{URL: to.URL + "/moved"}, "the status is 302"},
		"no more than a MiB":           {quoinv1.RolloutHTTPCheck{URL: to.URL + "/long", BodyContains: "is well"}, "does not contain"},
		"nobody listens":               {quoinv1.RolloutHTTPCheck{URL: "http://127.0.0.1:1/?token=hidden"}, "127.0.0.1:1 does not answer"},
		"credentials in the url":       {quoinv1.RolloutHTTPCheck{URL: "http://me:hidden@127.0.0.1/"}, "the url is none such as"},
		"what is no page":              {quoinv1.RolloutHTTPCheck{URL: "file:///etc/passwd"}, "the url is none such as"},
		"credentials without a secret": {quoinv1.RolloutHTTPCheck{URL: to.URL + "/healthz", SecretName: "s"}, "secret s: it cannot be read"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			s.Management = fake.NewFakeClient()
			_, err := s.ask(t.Context(), &quoinv1.RolloutCheck{HTTP: &c.check})
			if c.fails == "" {
				g.Expect(err).NotTo(HaveOccurred())
				return
			}
			g.Expect(err).To(MatchError(ContainSubstring(c.fails)))
			g.Expect(err).NotTo(MatchError(ContainSubstring("hidden")))
		})
	}
	NewWithT(t).Expect(*asked).NotTo(BeEmpty())
}

// A Secret is sent to the origin that it names itself, and over TLS only.
func TestSecretsGoWhereTheyBelong(t *testing.T) {
	to, asked := server(t, true)
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: to.Certificate().Raw})
	plain := strings.Replace(to.URL, "https", "http", 1)
	for name, c := range map[string]struct {
		url   string
		data  map[string]string
		fails string
		sends string
	}{
		"a token":            {to.URL, map[string]string{"origin": to.URL, "ca.crt": string(authority), "token": "hidden\n"}, "", "Bearer hidden"},
		"a password":         {to.URL, map[string]string{"origin": to.URL + "/", "ca.crt": string(authority), "username": "me", "password": "hidden"}, "", "Basic bWU6aGlkZGVu"},
		"an authority alone": {to.URL, map[string]string{"origin": to.URL, "ca.crt": string(authority)}, "", ""},
		"no authority":       {to.URL, map[string]string{"origin": to.URL, "token": "hidden"}, "certificate", ""},
		"no certificate":     {to.URL, map[string]string{"origin": to.URL, "ca.crt": "hidden"}, "ca.crt holds no PEM", ""},
		"any other Secret":   {to.URL, map[string]string{"value": "kubeconfig", "token": "hidden"}, "it is not meant for checks", ""},
		"another origin":     {to.URL, map[string]string{"origin": "https://127.0.0.1", "token": "hidden"}, "it is for another origin", ""},
		"a path beside it": {to.URL, map[string]string{"origin": to.URL + "/healthz", "token": "hidden"},
			"it is for another origin", ""},
		"a query beside it": {to.URL, map[string]string{"origin": to.URL + "?a=b", "token": "hidden"},
			"it is for another origin", ""},
		"without TLS": {plain, map[string]string{"origin": plain, "token": "hidden"}, "sent to https:// only", ""},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			*asked = nil
			secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "s"}, Data: map[string][]byte{}}
			for key, value := range c.data {
				secret.Data[key] = []byte(value)
			}
			s := cluster()
			s.Management = fake.NewFakeClient(secret)
			_, err := s.ask(t.Context(), &quoinv1.RolloutCheck{HTTP: &quoinv1.RolloutHTTPCheck{URL: c.url + "/healthz", SecretName: "s"}})
			if c.fails != "" {
				g.Expect(err).To(MatchError(ContainSubstring(c.fails)))
				g.Expect(err).NotTo(MatchError(ContainSubstring("hidden")))
				g.Expect(*asked).To(BeEmpty())
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect((*asked)[0].Header.Get("Authorization")).To(Equal(c.sends))
		})
	}
}

// Servers quote what they were sent, also where the quotation is cut off.
func TestAServerThatQuotesASecretIsNotQuoted(t *testing.T) {
	tokens := secrettest.Tokens{"token": secrettest.Draw(), "password": "n0rThis/one+anywhere=" + secrettest.Draw(),
		"username": secrettest.Draw()}
	token, password := tokens["token"], tokens["password"]
	for name, quote := range map[string]func(w http.ResponseWriter, said string){
		"in an error": func(w http.ResponseWriter, said string) {
			w.WriteHeader(http.StatusBadRequest)
			_ = json.NewEncoder(w).Encode(map[string]string{"status": "error", "error": said})
		},
		"where it is cut off": func(w http.ResponseWriter, said string) {
			_ = json.NewEncoder(w).Encode(map[string]string{"status": "error", "error": strings.Repeat("x", mostSaid-20) + said})
		},
		"in a type": func(w http.ResponseWriter, said string) {
			_ = json.NewEncoder(w).Encode(map[string]any{"status": "success", "data": map[string]string{"resultType": said}})
		},
		"in what is no HTTP": func(w http.ResponseWriter, said string) {
			conn, _, err := w.(http.Hijacker).Hijack()
			if err == nil {
				_, _ = conn.Write([]byte("HTTP/1.1 " + said + "\r\n\r\n"))
				_ = conn.Close()
			}
		},
	} {
		for kind, data := range map[string]map[string]string{
			"token": {"token": token}, "password": {"username": tokens["username"], "password": password},
		} {
			t.Run(kind+" "+name, func(t *testing.T) {
				g := NewWithT(t)
				to := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					_, sent, _ := strings.Cut(r.Header.Get("Authorization"), " ")
					_, plain, _ := r.BasicAuth()
					// First as it was sent, for that is what may be cut off.
					quote(w, sent+" "+plain+" "+secrettest.Tokens(data).Printed())
				}))
				to.StartTLS()
				t.Cleanup(to.Close)
				secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "s"}, Data: map[string][]byte{
					"origin": []byte(to.URL),
					"ca.crt": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: to.Certificate().Raw})}}
				for key, value := range data {
					secret.Data[key] = []byte(value)
				}
				s := cluster()
				s.Management = fake.NewFakeClient(secret)
				_, err := s.ask(t.Context(), &quoinv1.RolloutCheck{Prometheus: &quoinv1.RolloutPrometheusCheck{URL: to.URL,
					Query: "up", Min: "1", SecretName: "s"}})
				g.Expect(err).To(HaveOccurred())
				g.Expect(tokens.Leaks(err.Error())).To(BeEmpty())
				encoded := base64.StdEncoding.EncodeToString([]byte(tokens["username"] + ":" + password))
				for _, secret := range []string{token, password, encoded} {
					for at := 0; at+10 <= len(secret); at++ {
						g.Expect(err.Error()).NotTo(ContainSubstring(secret[at : at+10]))
					}
				}
			})
		}
	}
}

func TestPrometheusChecks(t *testing.T) {
	to, asked := server(t, false)
	vector := func(values ...string) string {
		var elements []string
		for _, v := range values {
			elements = append(elements, fmt.Sprintf(`{"metric":{"job":"shop"},"value":[1700000000.1,%q]}`, v))
		}
		return `{"status":"success","data":{"resultType":"vector","result":[` + strings.Join(elements, ",") + `]}}`
	}
	scalar := func(v string) string {
		return `{"status":"success","data":{"resultType":"scalar","result":[1700000000.1,"` + v + `"]}}`
	}
	for name, c := range map[string]struct{ query, min, max, fails string }{
		"a scalar":             {scalar("0.995"), "0.99", "1", ""},
		"at the limits":        {vector("1"), "1", "1", ""},
		"one element":          {vector("3"), "", "5", ""},
		"below":                {scalar("0.985"), "0.99", "", "the number is 0.985 and below 0.99"},
		"above":                {vector("6"), "", "5", "the number is 6 and above 5"},
		"none":                 {vector(), "1", "", "results in 0 elements"},
		"several":              {vector("1", "2"), "1", "", "results in 2 elements"},
		"not a number":         {vector("NaN"), "0", "", "NaN"},
		"endless":              {vector("+Inf"), "", "5", "the number is +Inf and above 5"},
		"a range":              {`{"status":"success","data":{"resultType":"matrix","result":[]}}`, "1", "", "results in a matrix"},
		"a query that fails":   {"up{", "1", "", "the query failed: parse error"},
		"what is no answer":    {"{}", "1", "", "the answer is none of Prometheus"},
		"a scalar of no kind":  {`{"status":"success","data":{"resultType":"scalar","result":{}}}`, "1", "", "cannot be read"},
		"a limit of no number": {scalar("1"), "a", "", "is not a number"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			s := cluster()
			_, err := s.ask(t.Context(), &quoinv1.RolloutCheck{Prometheus: &quoinv1.RolloutPrometheusCheck{URL: to.URL + "/",
				Query: c.query, Min: c.min, Max: c.max}})
			if c.fails == "" {
				g.Expect(err).NotTo(HaveOccurred())
				return
			}
			g.Expect(err).To(MatchError(ContainSubstring(c.fails)))
		})
	}
	g := NewWithT(t)
	g.Expect((*asked)[0].URL.Path).To(Equal("/api/v1/query"))
	_, err := cluster().ask(t.Context(), &quoinv1.RolloutCheck{})
	g.Expect(err).To(MatchError(ContainSubstring("does not know its kind")))
}

func TestTheProxyOfTheEnvironmentIsNotAsked(t *testing.T) {
	proxytest.NotAsked(t, func() {
		for _, scheme := range []string{"http", "https"} {
			_, err := cluster().ask(t.Context(), &quoinv1.RolloutCheck{
				HTTP: &quoinv1.RolloutHTTPCheck{URL: scheme + "://checks.invalid/healthz"}})
			NewWithT(t).Expect(err).To(MatchError(ContainSubstring("checks.invalid does not answer")))
		}
	})
}

func TestAddressesThatAreNotAsked(t *testing.T) {
	g := NewWithT(t)
	to, asked := server(t, false)
	s := cluster()
	s.Egress = egress.New(nil, nil)
	_, err := s.ask(t.Context(), &quoinv1.RolloutCheck{HTTP: &quoinv1.RolloutHTTPCheck{URL: to.URL + "/healthz"}})
	g.Expect(err).To(MatchError(ContainSubstring("is refused: it is the manager's own")))
	g.Expect(*asked).To(BeEmpty())
}
