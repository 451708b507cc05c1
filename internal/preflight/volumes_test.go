// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func claims(name string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}})
	}
}

// Proves: S0-43
//
// TestVolumesOfPodsThatLeave has an upgrade blocked that would leave a volume in use behind.
func TestVolumesOfPodsThatLeave(t *testing.T) {
	local := corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: "/data"}}
	driver := corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "topolvm.io"}}
	in := func(key string, values ...string) corev1.NodeSelectorTerm {
		return corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{
			{Key: key, Operator: corev1.NodeSelectorOpIn, Values: values}}}
	}
	for name, c := range map[string]struct {
		source corev1.PersistentVolumeSource
		phase  corev1.PersistentVolumePhase
		terms  []corev1.NodeSelectorTerm
		pod    *corev1.Pod
		want   []string
	}{
		"local": {source: local, want: []string{"Block PersistentVolume data LocalData"}},
		"a path of the host": {source: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/data"}},
			want: []string{"Block PersistentVolume data LocalData"}},
		"on the network": {source: corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{Server: "nfs", Path: "/"}}},
		"released":       {source: local, phase: corev1.VolumeReleased},
		"failed":         {source: local, phase: corev1.VolumeFailed},
		"of TopoLVM": {source: driver, terms: []corev1.NodeSelectorTerm{in("topology.topolvm.io/node", "w")},
			want: []string{"Block PersistentVolume data LocalData"}},
		"of OpenEBS, by the host's name": {source: driver,
			terms: []corev1.NodeSelectorTerm{in("openebs.io/nodename", "host-of-w")},
			want:  []string{"Block PersistentVolume data LocalData"}},
		"of one zone":                     {source: driver, terms: []corev1.NodeSelectorTerm{in("topology.kubernetes.io/zone", "a")}},
		"of two Nodes":                    {source: driver, terms: []corev1.NodeSelectorTerm{in("linbit.com/hostname", "w", "x")}},
		"of either of two":                {source: driver, terms: []corev1.NodeSelectorTerm{in("linbit.com/hostname", "w"), in("linbit.com/hostname", "x")}},
		"of a driver that knows no Nodes": {source: driver},
		"that nobody uses":                {source: local, pod: web("a", "w")},
		"used on a Node that stays":       {source: local, pod: web("a", "stays", claims("data"))},
		"of a pod that ended":             {source: local, pod: web("a", "w", claims("data"), inPhase(corev1.PodSucceeded))},
		"of a DaemonSet, which no drain evicts": {source: local, pod: web("a", "w", claims("data"), ownedBy("DaemonSet", "db")),
			want: []string{"Block PersistentVolume data LocalData"}},
	} {
		t.Run(name, func(t *testing.T) {
			volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "data"}, Spec: corev1.PersistentVolumeSpec{
				PersistentVolumeSource: c.source, ClaimRef: &corev1.ObjectReference{Namespace: "shop", Name: "data"}}}
			if volume.Status.Phase = corev1.VolumeBound; c.phase != "" {
				volume.Status.Phase = c.phase
			}
			if c.terms != nil {
				volume.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: c.terms}}
			}
			if c.pod == nil {
				c.pod = web("a", "w", claims("data"))
			}
			free := volume.DeepCopy()
			free.Name, free.Spec.ClaimRef = "free", nil
			expect(t, lookAtVolumes, subject(t, []client.Object{machine("w", "v1.35.4", false), machine("stays", "v1.36.3", false)},
				[]client.Object{named(node("w"), "host-of-w"), node("stays"), volume, free, c.pod}), c.want...)
		})
	}
}

func named(node *corev1.Node, hostname string) *corev1.Node {
	node.Labels = map[string]string{corev1.LabelHostname: hostname}
	return node
}

func TestPathsOfTheHostThatPodsWriteTo(t *testing.T) {
	mounts := func(path string, readOnly bool, kind *corev1.HostPathType) func(*corev1.Pod) {
		return func(pod *corev1.Pod) {
			pod.Spec.Volumes = []corev1.Volume{{Name: "host", VolumeSource: corev1.VolumeSource{
				HostPath: &corev1.HostPathVolumeSource{Path: path, Type: kind}}}}
			pod.Spec.Containers = []corev1.Container{{Name: "c",
				VolumeMounts: []corev1.VolumeMount{{Name: "host", ReadOnly: readOnly}}}}
		}
	}
	const warns = "Warn Pod shop/a HostPath"
	for name, c := range map[string]struct {
		pod  *corev1.Pod
		want []string
	}{
		"written":        {pod: web("a", "w", mounts("/srv/db", false, nil)), want: []string{warns}},
		"a folder":       {pod: web("a", "w", mounts("/srv/db", false, ptr.To(corev1.HostPathDirectory))), want: []string{warns}},
		"read":           {pod: web("a", "w", mounts("/srv/db", true, nil))},
		"a socket":       {pod: web("a", "w", mounts("/srv/db.sock", false, ptr.To(corev1.HostPathSocket)))},
		"lost by a boot": {pod: web("a", "w", mounts("/var/run/docker.sock", false, nil))},
		"looks like run": {pod: web("a", "w", mounts("/runtime", false, nil)), want: []string{warns}},
		"on each Node":   {pod: web("a", "w", mounts("/srv/db", false, nil), ownedBy("DaemonSet", "agent"))},
	} {
		t.Run(name, func(t *testing.T) {
			expect(t, lookAtVolumes, subject(t, []client.Object{machine("w", "v1.35.4", false)},
				[]client.Object{node("w"), c.pod}), c.want...)
		})
	}
}
