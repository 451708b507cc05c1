// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package execute

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/pivot"
)

const (
	// answerTimeout is how long the target may take to bring the image to a node, to start a Pod and to ask.
	answerTimeout = 2 * time.Minute
	// answerInterval is how often the Pod is looked at meanwhile.
	answerInterval = 500 * time.Millisecond
	// removalTimeout is how long the Pod may take to go, also when the command is interrupted.
	removalTimeout = 15 * time.Second
)

// ask the target what it reaches, by a Pod beside its manager. What keeps the Pod from answering is no error: that
// nobody was asked is a warning, since who may move a namespace may not be allowed to run Pods there.
func (p *Pivot) ask(ctx context.Context, f *pivot.Facts) error {
	if f.Reach.Unasked = f.Unaskable(); f.Reach.Unasked != "" || len(f.Reach.Ways) == 0 {
		return nil
	}
	p.Report("asking from the target what is reached there, by a Pod in namespace %s", f.Reach.Manager.Namespace)
	message, err := p.answer(ctx, f.Reach.Ways, f.Reach.Manager)
	if err == nil {
		f.Reach.Answer, err = pivot.ParseAnswer(message, len(f.Reach.Ways))
	}
	if err != nil {
		f.Reach.Unasked = err.Error()
	}
	return ctx.Err()
}

// answer of a Pod, which is gone afterwards.
func (p *Pivot) answer(ctx context.Context, ways []pivot.Way, manager *appsv1.Deployment) (_ string, err error) {
	q := pivot.Question{}
	for _, way := range ways {
		q.Looks = append(q.Looks, way.Look)
	}
	// Kubernetes before 1.33 has no such type; its managers refuse no Service either.
	services := &networkingv1.ServiceCIDRList{}
	if p.Target.Client.List(ctx, services) == nil {
		for _, service := range services.Items {
			q.Services = append(q.Services, service.Spec.CIDRs...)
		}
	}
	pod, err := pivot.ReachPod(manager, p.Namespace, q)
	if err != nil {
		return "", err
	}
	if err := p.start(ctx, pod); err != nil {
		return "", fmt.Errorf("starting Pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	defer func() { err = errors.Join(err, p.remove(ctx, pod, 1)) }()
	return p.await(ctx, pod)
}

// await what the Pod leaves.
func (p *Pivot) await(ctx context.Context, pod *corev1.Pod) (message string, err error) {
	within := cmp.Or(p.Patience, answerTimeout)
	awaits := pivot.Awaits(pod)
	err = wait.PollUntilContextTimeout(ctx, answerInterval, within, true, func(ctx context.Context) (ended bool, _ error) {
		found := &corev1.Pod{}
		switch err := p.Target.Client.Get(ctx, client.ObjectKeyFromObject(pod), found); {
		case apierrors.IsNotFound(err) || err == nil && found.UID != pod.UID:
			return false, errors.New("somebody has deleted it, or another run of the command has made its own")
		case err != nil:
			return false, nil //nolint:nilerr // it is asked again for as long as there is time
		}
		awaits = pivot.Awaits(found)
		message, ended = pivot.Left(found)
		return ended, nil
	})
	if wait.Interrupted(err) {
		err = fmt.Errorf("no answer within %s: %s", within, awaits)
	}
	if err != nil {
		return "", fmt.Errorf("asking by Pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return message, nil
}

// start the Pod, in the place of one that a killed command left.
func (p *Pivot) start(ctx context.Context, pod *corev1.Pod) error {
	wanted := pod.DeepCopy()
	err := p.Target.Client.Create(ctx, pod)
	if !apierrors.IsAlreadyExists(err) {
		return err //nolint:wrapcheck // the caller does
	}
	left := &corev1.Pod{}
	if err := p.Target.Client.Get(ctx, client.ObjectKeyFromObject(wanted), left); err == nil {
		if err := p.remove(ctx, left, 0); err != nil {
			return err
		}
	}
	wanted.DeepCopyInto(pod)
	return p.Target.Client.Create(ctx, pod) //nolint:wrapcheck // the caller does
}

// remove the Pod, also when the command is interrupted, and no other of its name.
func (p *Pivot) remove(ctx context.Context, pod *corev1.Pod, grace int64) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removalTimeout)
	defer cancel()
	err := p.Target.Client.Delete(ctx, pod, client.GracePeriodSeconds(grace), client.Preconditions{UID: &pod.UID})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("deleting Pod %s/%s, which ends by itself and is to be deleted by hand: %w", pod.Namespace,
			pod.Name, err)
	}
	return nil
}
