"""A validated spec as a message again: what was asked for, with every default filled in.

validate.py is the other direction, since reading a spec and judging it are one walk.
"""

from __future__ import annotations

from hai.v1 import task_spec_pb2 as pb
from hai_backend.domain.spec import OptionsSpec, RoleSpec, ServiceSpec, TaskSpec


def spec_to_proto(spec: TaskSpec) -> pb.TaskSpec:
    """`validate(spec_to_proto(s)) == s`."""
    return pb.TaskSpec(
        version=spec.version,
        name=spec.name,
        task_type=spec.task_type.value,
        priority=spec.priority,
        spec=_program(spec),
        resource=_resource(spec),
        services=[_service(service) for service in spec.services],
        options=_options(spec.options),
        roles=[_role(role) for role in spec.roles],
        policies=_policies(spec),
    )


def _program(spec: TaskSpec) -> pb.ProgramSpec:
    program = spec.spec
    return pb.ProgramSpec(
        workspace=program.workspace,
        entrypoint=program.entrypoint,
        parameters=program.parameters,
        environments=program.environments,
        entrypoint_executable=program.entrypoint_executable,
        git_remote_repo=program.git_remote_repo,
        git_target_revision=program.git_target_revision,
    )


def _resource(spec: TaskSpec) -> pb.ResourceSpec:
    resource = spec.resource
    return pb.ResourceSpec(
        image=resource.image,
        group=f"{resource.group}#{resource.zone}" if resource.zone else resource.group,
        node_count=resource.node_count,
        is_spot=resource.is_spot,
        gpu=resource.gpu,
        cpu=resource.cpu,
        memory=resource.memory,
    )


def _service(service: ServiceSpec) -> pb.ServiceSpec:
    if service.name in ("jupyter", "ssh"):  # built in: nothing else may be set
        return pb.ServiceSpec(name=service.name)
    return pb.ServiceSpec(
        name=service.name,
        type=service.type.value,
        port=service.port,
        rank=service.rank,
        startup_script=service.startup_script,
        rewrite_uri=service.rewrite_uri,
    )


def _options(options: OptionsSpec) -> pb.OptionsSpec:
    message = pb.OptionsSpec(
        whole_life_state=options.whole_life_state,
        mount_code=options.mount_code,
        py_venv=options.py_venv,
        tags=options.tags,
        watchdog_time=options.watchdog_time,
        record_git_revision=options.record_git_revision,
        shared_in_group=options.shared_in_group,
        assigned_nodes=options.assigned_nodes,
        sidecar=options.sidecar,
        fffs_enable_fuse=options.fffs_enable_fuse,
        timeout=options.timeout,
        time_limit=options.time_limit,
        max_retries=options.max_retries,
        suspend_signal=options.suspend_signal,
        ack_within=options.ack_within,
        save_within=options.save_within,
        env_fallback=options.env_fallback,
        idle_timeout=options.idle_timeout,
        lifetime=options.lifetime,
    )
    _parts(options, message)
    return message


def _parts(options: OptionsSpec, message: pb.OptionsSpec) -> None:
    if (node := options.override_node_resource) is not None:
        message.override_node_resource.CopyFrom(
            pb.NodeResourceSpec(cpu=node.cpu, memory=node.memory)
        )
    if (profile := options.profile) is not None:
        copy = pb.ProfileSpec(
            time=profile.time,
            recorder=profile.recorder,
            interval=profile.interval,
            warmup=profile.warmup,
            trace=profile.trace,
            follow_task=profile.follow_task,
        )
        message.profile.CopyFrom(copy)


def _role(role: RoleSpec) -> pb.RoleSpec:
    return pb.RoleSpec(
        name=role.name,
        count=role.count,
        entrypoint=role.entrypoint,
        parameters=role.parameters,
        environments=role.environments,
        gpu=role.gpu,
        cpu=role.cpu,
        memory=role.memory,
    )


def _policies(spec: TaskSpec) -> pb.PolicySpec:
    policies = spec.policies
    return pb.PolicySpec(
        on_pod_failed=policies.on_pod_failed.value,
        on_pod_evicted=policies.on_pod_evicted.value,
        on_role_completed=policies.on_role_completed.value,
        min_available=policies.min_available,
    )
