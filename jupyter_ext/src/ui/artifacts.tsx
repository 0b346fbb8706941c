/** The part of the submit dialog for input and output artifacts. */
import * as React from 'react';

import { Artifact, Submission } from '../model/api_types';
import { Context, useLoaded } from './context';
import { Field } from './common';

export type MappedArtifacts = NonNullable<Submission['artifacts']>;

/** A choice for input and output; nothing if there are no artifacts. */
export function Artifacts(props: { context: Context; mapped: MappedArtifacts; onChange: (mapped: MappedArtifacts) => void }): JSX.Element | null {
  const { context, mapped, onChange } = props;
  const all = useLoaded(() => context.api.artifacts(), []).value ?? [];
  if (all.length === 0) {
    return null;
  }
  const choice = (direction: keyof MappedArtifacts, label: string) => (
    <Field label={context.translate(label)}>
      <select
        className="hai-input"
        value={mapped[direction] ? title(mapped[direction]) : ''}
        onChange={event => onChange(withArtifact(mapped, direction, all.find(artifact => title(artifact) === event.target.value)))}
      >
        <option value="">{context.translate('none')}</option>
        {all.map(artifact => (
          <option key={title(artifact)} value={title(artifact)} title={artifact.location}>
            {title(artifact)} {artifact.type ? `(${artifact.type})` : ''}
          </option>
        ))}
      </select>
    </Field>
  );
  return (
    <div className="hai-fields">
      {choice('input', 'Artifact that it reads')}
      {choice('output', 'Artifact that it makes')}
    </div>
  );
}

/** Returns the reference as on the command line: vision/resnet:1. */
function title(artifact: Artifact): string {
  return `${artifact.user_group ? `${artifact.user_group}/` : ''}${artifact.name}:${artifact.version ?? ''}`;
}

function withArtifact(mapped: MappedArtifacts, direction: keyof MappedArtifacts, chosen: Artifact | undefined): MappedArtifacts {
  const { [direction]: _, ...others } = mapped;
  return chosen ? { ...others, [direction]: { name: chosen.name, version: chosen.version, user_group: chosen.user_group } } : others;
}
