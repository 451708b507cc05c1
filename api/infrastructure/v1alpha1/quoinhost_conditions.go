// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// Condition types and reasons of a QuoinHost.
const (
	// HostReadyCondition is True while the host is reachable, trusted and in the state its claim asks for.
	HostReadyCondition = "Ready"
	// HostReachableCondition is True while authenticated SSH exchanges succeed.
	HostReachableCondition = "Reachable"
	// HostKeyVerifiedCondition is False once the host presents another key than the pinned one: all work on it stops.
	HostKeyVerifiedCondition = "HostKeyVerified"
	// HostInspectedCondition is True when the facts in status were read and allow the host to become a node.
	HostInspectedCondition = "Inspected"
	// HostProvisionedCondition is True when the bootstrap data of the claiming Machine ran to its end.
	HostProvisionedCondition = "Provisioned"
	// HostCleanCondition is True when a verification found nothing of an earlier cluster.
	HostCleanCondition = "Clean"
	// HostFencedCondition is True when the host is known not to run: its BMC confirms that the power is off, or a person
	// stated that it is gone. Absent while nobody asks.
	HostFencedCondition = "Fenced"
	// HostBMCVerifiedCondition is True while the host's BMC let us in when it was last asked, and speaks of this host's
	// computer: it is asked when the host is new or changes, and daily. Absent where there is no BMC, and until it was
	// asked.
	HostBMCVerifiedCondition = "BMCVerified"
	// HostAddonImagesCondition is True when the host holds the images of every version that its QuoinMachine asks for.
	HostAddonImagesCondition = "AddonImagesPresent"
	// HostEtcdRecoveryCondition is True when the host has done its part in a recovery of etcd that its QuoinMachine asks
	// for. Absent while it asks for none.
	HostEtcdRecoveryCondition = "EtcdRecovered"

	// HostStagedCondition is True when a free host has what spec.stage asks for. Absent while it asks for nothing.
	HostStagedCondition = "Staged"

	// HostUniqueCondition is False while another host that the same Cluster could have carries the same hostname or
	// machine-id, or, where both have a BMC, the same product UUID. Absent otherwise.
	HostUniqueCondition = "Unique"

	// HostDuplicateReason: another host is named alike; the message names it, and what to do.
	HostDuplicateReason = "DuplicateIdentity"

	// HostUnchangedCondition is False when the host is another machine, or another installation, or has other disks than
	// when its facts were read before, until a person says retry. Absent otherwise.
	HostUnchangedCondition = "Unchanged"

	// HostMachineReplacedReason: another machine answers at the address, with the same host key. It outranks the next two,
	// and only the retry that the message names ends it.
	HostMachineReplacedReason = "MachineReplaced"
	// HostReinstalledReason: the machine-id is another one, under the same host key.
	HostReinstalledReason = "Reinstalled"
	// HostDiskReplacedReason: a disk is gone, or another one is in its place.
	HostDiskReplacedReason = "DiskReplaced"

	// HostQuietCondition is True when nothing of ours runs on a host that is paused or held, and nothing is about to
	// start. Absent on other hosts. For a held host it counts when its observedGeneration is the host's.
	HostQuietCondition = "Quiet"

	// HostAPIServerStoppedCondition is True when the API server of a host that leaves the control plane has ended, before
	// the etcd member beside it is removed. Absent while its QuoinMachine does not ask for it.
	HostAPIServerStoppedCondition = "APIServerStopped"

	// HostUnreachableReason: no TCP or SSH connection.
	HostUnreachableReason = "Unreachable"
	// HostAddressRefusedReason: the manager's --allowed-networks does not let it connect to the address.
	HostAddressRefusedReason = "AddressRefused"
	// HostAuthenticationFailedReason: the host refused the user's key.
	HostAuthenticationFailedReason = "AuthenticationFailed"
	// HostCredentialsInvalidReason: the Secret is missing or holds no usable key.
	HostCredentialsInvalidReason = "CredentialsInvalid"
	// HostKeyChangedReason: the host presents a key that is not pinned.
	HostKeyChangedReason = "HostKeyChanged"
	// HostKeyPinnedReason: the presented key is the pinned one.
	HostKeyPinnedReason = "Pinned"
	// HostUnsuitableReason: the host lacks something a node needs; the message lists it.
	HostUnsuitableReason = "Unsuitable"
	// HostInspectionFailedReason: the facts could not be read.
	HostInspectionFailedReason = "InspectionFailed"
	// HostStepRunningReason: a step of the installation, the bootstrap data or the reset runs.
	HostStepRunningReason = "StepRunning"
	// HostOperationFailedReason: something that was begun on the host, or what it needs, failed
	// half-way; it is tried again.
	HostOperationFailedReason = "OperationFailed"
	// HostAPIServerStoppedReason: the API server has ended, and its manifest is out of the kubelet's sight.
	HostAPIServerStoppedReason = "Stopped"
	// HostStepFailedReason: a step failed; the message holds its last lines.
	HostStepFailedReason = "StepFailed"
	// HostBootstrapInterruptedReason: kubeadm was interrupted (reboot, power loss) and is not run again; its Machine must
	// be replaced.
	HostBootstrapInterruptedReason = "BootstrapInterrupted"
	// HostBootstrapDataInvalidReason: the bootstrap data holds a directive that cannot be carried out; the host was not
	// touched.
	HostBootstrapDataInvalidReason = "BootstrapDataInvalid"
	// HostVersionSkewReason: the kubeadm that the host would get does not fit what it is to do there; the host was not
	// touched.
	HostVersionSkewReason = "VersionSkew"
	// HostStagedReason: what spec.stage asks for is on the host.
	HostStagedReason = "Staged"
	// HostStagingFailedReason: what spec.stage asks for could not be brought to the host; it is tried again.
	HostStagingFailedReason = "StagingFailed"
	// HostMachineDeletingReason: the Machine is being deleted, so no bootstrap data is run for it any more.
	HostMachineDeletingReason = "MachineDeleting"
	// HostArtifactsUnavailableReason: the bundle of the wanted version cannot be read or does not match its checksums.
	HostArtifactsUnavailableReason = "ArtifactsUnavailable"
	// HostWaitingForBootstrapDataReason: the Machine has no bootstrap data yet.
	HostWaitingForBootstrapDataReason = "WaitingForBootstrapData"
	// HostEndpointInUseReason: something else answers at the control-plane endpoint.
	HostEndpointInUseReason = "EndpointInUse"
	// HostAbandonedReason: a person stated that the host is gone or will be wiped; it was not reset.
	HostAbandonedReason = "Abandoned"
	// HostReleasedUncleanReason: a person let the Machine go although the host is not known to be clean, or to be stopped.
	HostReleasedUncleanReason = "ReleasedUnclean"
	// HostNamespaceNotAllowedReason: the claim comes from a namespace that spec.consumerNamespaces does not name; nothing
	// is done for it.
	HostNamespaceNotAllowedReason = "NamespaceNotAllowed"
	// HostNotAcceptedReason: spec.hostNamespaces of the QuoinMachine that the claim names does not name the host's
	// namespace; nothing is done for it.
	HostNotAcceptedReason = "HostNotAccepted"
	// HostMachineMismatchReason: the QuoinMachine that the claim names is not that of the Machine which it names, or has
	// another host; nothing is done for it.
	HostMachineMismatchReason = "MachineMismatch"
	// HostNotClaimedReason: nobody owns the host.
	HostNotClaimedReason = "NotClaimed"
	// HostCleaningReason: the reset or its verification runs.
	HostCleaningReason = "Cleaning"
	// HostNotCleanReason: the verification found something of an earlier cluster; the message lists it.
	HostNotCleanReason = "NotClean"
	// HostInUseReason: the host belongs to a Machine.
	HostInUseReason = "InUse"
	// HostOwnedByOtherReason: the owner record on the host names another owner.
	HostOwnedByOtherReason = "OwnedByOther"
	// HostReleasePendingReason: the host is clean and waits until its former Machine, and with it the Node, is gone.
	HostReleasePendingReason = "ReleasePending"
	// HostConsumerMissingReason: the QuoinMachine that claimed the host does not exist, and nobody saw it being deleted.
	HostConsumerMissingReason = "ConsumerMissing"
	// HostNotReachedReason: no exchange has taken place yet.
	HostNotReachedReason = "NotReached"
	// HostReachableReason: the last exchange succeeded.
	HostReachableReason = "Reachable"
	// HostInspectedReason: the facts were read and allow the host to become a node.
	HostInspectedReason = "Inspected"
	// HostAvailableReason: the host is free.
	HostAvailableReason = "Available"
	// HostProvisionedReason: the bootstrap data ran to its end.
	HostProvisionedReason = "Provisioned"
	// HostMaintenanceReason: spec.maintenance is set; nothing new is started on the host.
	HostMaintenanceReason = "Maintenance"
	// HostDetachedReason: the host carries the detached annotation; nobody connects to it.
	HostDetachedReason = "Detached"
	// HostStaleClaimReason: the host serves a newer generation of its claim; this copy of the objects reads and does
	// nothing else.
	HostStaleClaimReason = "StaleClaim"
	// HostKeyMissingReason: hostKeyPolicy is Strict, and neither a host key nor a host certificate authority is given.
	HostKeyMissingReason = "HostKeyMissing"
	// HostDeadReason: the host did not answer for the time of its policy; it is fenced off, and its Machine may go.
	HostDeadReason = "Dead"
	// HostReturnedReason: a host that had been given up answers again; it is not trusted until it was reset or accepted.
	HostReturnedReason = "Returned"
	// HostFencedReason: the power is confirmed off, or a person stated that the host is gone.
	HostFencedReason = "Fenced"
	// HostNotFencedReason: nothing says that the host does not run any more.
	HostNotFencedReason = "NotFenced"
	// HostDomainLostReason: many hosts of the failure domain fell silent together; none of them is given up meanwhile.
	HostDomainLostReason = "FailureDomainLost"
	// HostPowerNeededReason: whoever has a hook on the Machine needs its host to run, as a control plane does whose
	// etcd has no quorum without the member there. The power is left as it is.
	HostPowerNeededReason = "PowerNeeded"
	// HostPoweringReason: the BMC was told to change the power, and that is being read back.
	HostPoweringReason = "Powering"
	// HostBMCVerifiedReason: the BMC answered for this host.
	HostBMCVerifiedReason = "Verified"
	// HostBMCLoginRefusedReason: the BMC refused the account.
	HostBMCLoginRefusedReason = "LoginRefused"
	// HostBMCFailedReason: the BMC did not answer or refused.
	HostBMCFailedReason = "BMCFailed"
	// HostUnconfirmedReason: no other host of the Cluster confirms that it serves this management cluster, so the power of
	// a silent one is left as it is until a person says otherwise.
	HostUnconfirmedReason = "Unconfirmed"
	// HostContradictedReason: another host of the Cluster serves another management cluster, so the power of a silent one
	// is left as it is.
	HostContradictedReason = "Contradicted"
	// HostClockOffsetReason: the host's clock is off too far for certificates to be valid.
	HostClockOffsetReason = "ClockOffset"
	// HostQuietReason: nothing of ours runs on the host.
	HostQuietReason = "Quiet"
	// HostBusyReason: a plan or a conversation with the host has not ended; the message says which.
	HostBusyReason = "Busy"
	// HostHeldReason: spec.heldFor is set; nothing new is started on the host.
	HostHeldReason = "Held"
	// HostCleanReason: nothing of an earlier cluster was found.
	HostCleanReason = "Clean"
)
