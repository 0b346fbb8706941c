/** The form for a new dev container. */
import * as React from 'react';

import { Context, useLoaded } from './context';
import { Failed, Field } from './common';

const DEFAULTS = { name: 'lab', kind: '', group: '', gpu: 0, memory: 0, environment: '', idle: 0 };
const KINDS: ReadonlyArray<readonly [string, string]> = [
  ['', 'as the group is'],
  ['shared', 'a share of a node'],
  ['dedicated', 'a whole node'],
  ['spot', 'what nobody else wants']
];

/** Creates a container; default values are not sent. */
export function ContainerForm(props: { context: Context; onDone: () => void }): JSX.Element {
  const { context, onDone } = props;
  const { translate } = context;
  const [form, setForm] = React.useState(DEFAULTS);
  const [failure, setFailure] = React.useState<Error | null>(null);
  const [sending, setSending] = React.useState(false);
  const groups = useLoaded(() => context.api.groups(), []);
  const set = (changed: Partial<typeof form>) => setForm({ ...form, ...changed });
  const send = async () => {
    setSending(true);
    try {
      context.store.put(await context.api.createContainer(toSpec(form)));
      context.store.changed();
      onDone();
    } catch (error) {
      setFailure(error as Error);
      setSending(false);
    }
  };
  const number = (label: string, key: 'gpu' | 'memory' | 'idle') => (
    <Field label={translate(label)}>
      <input
        className="hai-input"
        type="number"
        min={0}
        value={form[key]}
        onChange={event => set({ [key]: Math.max(0, Number(event.target.value) || 0) })}
      />
    </Field>
  );
  return (
    <section className="hai-card">
      <div className="hai-fields">
        <Field label={translate('Name')}>
          <input className="hai-input" autoFocus value={form.name} onChange={event => set({ name: event.target.value })} />
        </Field>
        <Field label={translate('Kind')}>
          <select className="hai-input" value={form.kind} onChange={event => set({ kind: event.target.value })}>
            {KINDS.map(([kind, label]) => (
              <option key={kind} value={kind}>
                {kind ? `${kind}: ${translate(label)}` : translate(label)}
              </option>
            ))}
          </select>
        </Field>
        <Field label={translate('Group')}>
          <select className="hai-input" value={form.group} onChange={event => set({ group: event.target.value })}>
            <option value="">default</option>
            {groups.value
              ?.filter(group => group.name !== 'default')
              .map(group => (
                <option key={group.name} value={group.name}>
                  {group.name}
                </option>
              ))}
          </select>
        </Field>
        <Field label={translate('Environment')}>
          <input
            className="hai-input"
            value={form.environment}
            placeholder={translate('none')}
            onChange={event => set({ environment: event.target.value })}
          />
        </Field>
        {number('GPUs', 'gpu')}
        {number('Memory (GB)', 'memory')}
        {number('Put away when idle for (hours)', 'idle')}
      </div>
      <Failed error={failure} context={context} />
      <div className="hai-actions">
        <button className="hai-button hai-primary" disabled={sending} onClick={() => void send()}>
          {translate('Create')}
        </button>
        <button className="hai-button" onClick={onDone}>
          {translate('Cancel')}
        </button>
      </div>
    </section>
  );
}

function toSpec(form: typeof DEFAULTS): object {
  return {
    name: form.name,
    ...(form.kind && { kind: form.kind }),
    ...(form.group && { group: form.group }),
    ...(form.gpu && { gpu: form.gpu }),
    ...(form.memory && { memory: form.memory }),
    ...(form.environment && { py_venv: form.environment }),
    ...(form.idle && { idle_timeout: form.idle * 3600 })
  };
}
