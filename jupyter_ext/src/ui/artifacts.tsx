/** The part of the submit dialog for input and output artifacts. */
import * as React from 'react';

import { Artifact, Submission } from '../model/api_types';
import { Context, useLoaded } from './context';
import { Field } from './common';

export type Named = NonNullable<Submission['artifacts']>;

/** A choice for each side; nothing where there are no artifacts. */
export function Artifacts(props: { context: Context; named: Named; onChange: (named: Named) => void }): JSX.Element | null {
  const { context, named, onChange } = props;
  const all = useLoaded(() => context.api.artifacts(), []).value ?? [];
  if (all.length === 0) {
    return null;
  }
  const choice = (side: keyof Named, label: string) => (
    <Field label={context.translate(label)}>
      <select
        className="hai-input"
        value={named[side] ? title(named[side]) : ''}
        onChange={event => onChange(changed(named, side, all.find(one => title(one) === event.target.value)))}
      >
        <option value="">{context.translate('none')}</option>
        {all.map(one => (
          <option key={title(one)} value={title(one)} title={one.location}>
            {title(one)} {one.type ? `(${one.type})` : ''}
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

/** vision/resnet:1, as on the command line. */
function title(one: Artifact): string {
  return `${one.user_group ? `${one.user_group}/` : ''}${one.name}:${one.version ?? ''}`;
}

function changed(named: Named, side: keyof Named, chosen: Artifact | undefined): Named {
  const { [side]: _, ...others } = named;
  return chosen ? { ...others, [side]: { name: chosen.name, version: chosen.version, user_group: chosen.user_group } } : others;
}
