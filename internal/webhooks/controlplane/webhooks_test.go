// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/clienttest"
)

// unstarted is a manager that connects to nothing.
func unstarted(t *testing.T, scheme *runtime.Scheme) ctrl.Manager {
	t.Helper()
	mgr, err := ctrl.NewManager(&rest.Config{Host: "https://quoin.test"}, ctrl.Options{Scheme: scheme,
		Metrics: metricsserver.Options{BindAddress: "0"}, WebhookServer: webhook.NewServer(webhook.Options{}),
		MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) {
			return meta.NewDefaultRESTMapper(nil), nil
		}})
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return mgr
}

// Each path that an API server knows is answered, by a webhook that can read what it is asked.
func TestWebhooksAreServed(t *testing.T) {
	g := NewWithT(t)
	scheme := clienttest.Scheme(clusterv1.AddToScheme, controlplanev1.AddToScheme)
	mgr := unstarted(t, scheme)
	g.Expect(SetupWithManager(mgr, nil)).To(Succeed())
	const group = "controlplane-cluster-x-k8s-io-v1alpha1-"
	for path, code := range map[string]int32{
		machineDeletionPath:                                http.StatusBadRequest,
		clusterDeletionPath:                                http.StatusBadRequest,
		controlPlaneDeletionPath:                           http.StatusBadRequest,
		scalePath:                                          http.StatusBadRequest,
		"/mutate-" + group + "quoincontrolplane":           http.StatusOK,
		"/validate-" + group + "quoincontrolplane":         http.StatusBadRequest,
		"/validate-" + group + "quoincontrolplanetemplate": http.StatusBadRequest,
	} {
		raw, err := json.Marshal(admissionv1.AdmissionReview{Request: &admissionv1.AdmissionRequest{UID: "1",
			Operation: admissionv1.Delete}})
		g.Expect(err).NotTo(HaveOccurred())
		request := httptest.NewRequest(http.MethodPost, path, bytes.NewReader(raw))
		request.Header.Set("Content-Type", "application/json")
		answer, review := httptest.NewRecorder(), admissionv1.AdmissionReview{}
		mgr.GetWebhookServer().WebhookMux().ServeHTTP(answer, request)
		g.Expect(json.Unmarshal(answer.Body.Bytes(), &review)).To(Succeed(), "%s: %s", path, answer.Body)
		g.Expect(review.Response.Result.Code).To(Equal(code), path)
	}
	g.Expect(SetupWithManager(unstarted(t, runtime.NewScheme()), nil)).NotTo(Succeed(), "it knows none of the kinds")
}

func TestDeletionsAreJudgedByTheClockAndRecorded(t *testing.T) {
	g := NewWithT(t)
	scheme := clienttest.Scheme(controlplanev1.AddToScheme)
	of := &MachineDeletionWebhook{}
	g.Expect(of.setup(unstarted(t, scheme))).To(Succeed())
	g.Expect(of.now).NotTo(BeNil())
	g.Expect(of.Recorder).NotTo(BeNil())
	given := events.NewFakeRecorder(1)
	of = &MachineDeletionWebhook{Recorder: given, decoder: admission.NewDecoder(scheme)}
	g.Expect(of.setup(unstarted(t, scheme))).To(Succeed())
	g.Expect(of.Recorder).To(BeIdenticalTo(given))
}
