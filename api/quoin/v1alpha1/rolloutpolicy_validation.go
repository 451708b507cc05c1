// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// RolloutValidation says how often a Cluster is looked at before a rollout goes on, and at what.
// +kubebuilder:validation:XValidation:rule="self.timeoutSeconds > self.successThreshold * self.intervalSeconds",message="timeoutSeconds must be more than successThreshold times intervalSeconds, or no validation could ever succeed in time"
type RolloutValidation struct {
	// successThreshold is how many looks in a row must find nothing before a new Machine counts and before the next one
	// is admitted. One is enough before the first Machine of a MachineDeployment. 0 looks at nothing.
	// +optional
	// +kubebuilder:default=2
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	SuccessThreshold *int32 `json:"successThreshold,omitempty"`

	// intervalSeconds is the time from a look that found nothing to the next one.
	// +optional
	// +kubebuilder:default=10
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=3600
	IntervalSeconds *int32 `json:"intervalSeconds,omitempty"`

	// failureIntervalSeconds is the time from a look that found something to the next one.
	// +optional
	// +kubebuilder:default=30
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=3600
	FailureIntervalSeconds *int32 `json:"failureIntervalSeconds,omitempty"`

	// timeoutSeconds is how long validation may take. After that no rollout of any MachineDeployment begins with a
	// further Machine, and condition Stalled says what is wrong. Looks go on, and the rollout with them.
	// +optional
	// +kubebuilder:default=900
	// +kubebuilder:validation:Minimum=10
	// +kubebuilder:validation:Maximum=604800
	TimeoutSeconds *int32 `json:"timeoutSeconds,omitempty"`

	// checks are made at every look, beside those of the Cluster's Nodes and of its system-critical pods.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	Checks []RolloutCheck `json:"checks,omitempty"`
}

// RolloutCheck is a question to a server that a person gave.
// +kubebuilder:validation:XValidation:rule="has(self.http) != has(self.prometheus)",message="a check has either http or prometheus"
type RolloutCheck struct {
	// name of the check.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name,omitempty"`

	// http asks a server for a page.
	// +optional
	HTTP *RolloutHTTPCheck `json:"http,omitempty"`

	// prometheus asks a Prometheus for a number.
	// +optional
	Prometheus *RolloutPrometheusCheck `json:"prometheus,omitempty"`
}

// RolloutHTTPCheck is a page that is asked for. Redirects are answers, and are not followed.
// +kubebuilder:validation:XValidation:rule="!has(self.secretName) || self.url.startsWith('https://')",message="what a Secret holds is sent to https:// only"
type RolloutHTTPCheck struct {
	// url of the page. It is asked for from the management cluster, without a proxy; addresses of the manager's own host,
	// link-local ones and those of clouds' metadata services are refused.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:Pattern=`^https?://[^\s/?#@]+([/?][^\s#]*)?$`
	URL string `json:"url,omitempty"`

	// expectedStatus of the answer.
	// +optional
	// +kubebuilder:default=200
	// +kubebuilder:validation:Minimum=100
	// +kubebuilder:validation:Maximum=599
	ExpectedStatus *int32 `json:"expectedStatus,omitempty"`

	// bodyContains is a text that the first MiB of the answer must contain.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	BodyContains string `json:"bodyContains,omitempty"`

	// secretName is a Secret of the namespace with the key origin, which is the beginning of the url up to the path, such
	// as https://shop.example.com. It may have ca.crt, the PEM encoded authority of the server; and token, or username
	// and password, which are sent to that origin only.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	SecretName string `json:"secretName,omitempty"`
}

// RolloutPrometheusCheck is a query that results in one number.
// +kubebuilder:validation:XValidation:rule="!has(self.secretName) || self.url.startsWith('https://')",message="what a Secret holds is sent to https:// only"
// +kubebuilder:validation:XValidation:rule="has(self.min) || has(self.max)",message="give min or max, or both"
// +kubebuilder:validation:XValidation:rule="!has(self.min) || !has(self.max) || double(self.min) <= double(self.max)",message="min must not be above max"
type RolloutPrometheusCheck struct {
	// url before /api/v1/query. It is asked for as that of an http check.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:Pattern=`^https?://[^\s/?#@]+(/[^\s?#]*)?$`
	URL string `json:"url,omitempty"`

	// query results in a scalar, or in a vector of one element. No element and several ones fail the check.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	Query string `json:"query,omitempty"`

	// min that the number may be.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^-?[0-9]+(\.[0-9]+)?$`
	Min string `json:"min,omitempty"`

	// max that the number may be.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^-?[0-9]+(\.[0-9]+)?$`
	Max string `json:"max,omitempty"`

	// secretName is as that of an http check.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	SecretName string `json:"secretName,omitempty"`
}

// RolloutValidationStatus is what looks found. It is of one MachineDeployment at a time.
type RolloutValidationStatus struct {
	// machineDeployment that was looked at.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	MachineDeployment string `json:"machineDeployment,omitempty"`

	// digest of what spec said about validation. Looks that were made by another one count for nothing.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	Digest string `json:"digest,omitempty"`

	// since is when the rollout began to wait for validation; unset while it does not.
	// +optional
	Since metav1.Time `json:"since,omitempty,omitzero"`

	// lastLookTime is when the last look ended, and so the age of all results.
	// +optional
	LastLookTime metav1.Time `json:"lastLookTime,omitempty,omitzero"`

	// successes is the number of looks in a row that found nothing.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Successes *int32 `json:"successes,omitempty"`

	// machines that were healthy at looks that found nothing, and do not count yet.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	Machines []RolloutValidatedMachine `json:"machines,omitempty"`

	// results of the last look, one for each check.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=20
	Results []RolloutCheckResult `json:"results,omitempty"`
}

// RolloutValidatedMachine is a new Machine that does not count yet.
type RolloutValidatedMachine struct {
	// name of the Machine.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`

	// machineDeployment that it belongs to.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	MachineDeployment string `json:"machineDeployment,omitempty"`

	// healthySince is when the Machine became healthy. One that was not in between begins anew.
	// +required
	HealthySince metav1.Time `json:"healthySince,omitempty,omitzero"`

	// successes is the number of looks in a row that found nothing while it was healthy.
	// +required
	// +kubebuilder:validation:Minimum=1
	Successes int32 `json:"successes,omitempty"`

	// lastLookTime is when the last of them ended.
	// +required
	LastLookTime metav1.Time `json:"lastLookTime,omitempty,omitzero"`
}

// RolloutCheckStatus is what a check came to.
// +kubebuilder:validation:Enum=Passed;Failed
type RolloutCheckStatus string

const (
	// RolloutCheckPassed found nothing.
	RolloutCheckPassed RolloutCheckStatus = "Passed"
	// RolloutCheckFailed found something, or could not be made.
	RolloutCheckFailed RolloutCheckStatus = "Failed"
)

// RolloutCheckResult is what one check found at the last look.
type RolloutCheckResult struct {
	// name of the check in spec; Nodes and Pods are those that are always made.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name,omitempty"`

	// status of the check.
	// +required
	Status RolloutCheckStatus `json:"status,omitempty"`

	// since is when the check first came to this status without another one between.
	// +optional
	Since metav1.Time `json:"since,omitempty,omitzero"`

	// message says what was found.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`

	// machines are the new Machines that what was found is held against; unset where it is about something else, such as
	// the control plane, and where nobody answered.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	Machines []string `json:"machines,omitempty"`
}
