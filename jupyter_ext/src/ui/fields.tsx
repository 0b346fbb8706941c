/** The fields of a submission. A field that differs from the last submission is marked, and can be reset. */
import * as React from 'react';

import { Form } from '../model/form';
import { levelName, levels } from '../model/format';
import { Context, useLoaded } from './context';
import { aboutEnvironment } from './environments';

interface Props {
  context: Context;
  form: Form;
  /** The values before the user typed anything. */
  initial: Form;
  /** The path of the submitted file. */
  path: string;
  onChange: (form: Form) => void;
}

export function Fields(props: Props): JSX.Element {
  const { context, form, onChange, path } = props;
  const { translate } = context;
  const set = (changed: Partial<Form>) => onChange({ ...form, ...changed });
  const text = (key: keyof Form, more: React.InputHTMLAttributes<HTMLInputElement> = {}) => (
    <input className="hai-input" value={form[key]} onChange={event => set({ [key]: event.target.value })} {...more} />
  );
  const count = (key: 'nodes' | 'maxRetries', least: number) =>
    text(key, { type: 'number', min: least, onChange: event => set({ [key]: Math.max(least, Number(event.target.value) || least) }) });
  const area = (key: keyof Form, rows: number) => (
    <textarea className="hai-input" rows={rows} value={form[key]} onChange={event => set({ [key]: event.target.value })} />
  );
  const field = (key: keyof Form, label: string, input: JSX.Element, wide = false) => (
    <ResettableField label={label} wide={wide} context={context} edited={form[key] !== props.initial[key]} onReset={() => set({ [key]: props.initial[key] })}>
      {input}
    </ResettableField>
  );
  const parameters = translate(path.endsWith('.ipynb') ? 'Parameters, one name=value a line' : 'Parameters, one name=value a line (given as --name=value)');
  return (
    <div className="hai-fields">
      {field('name', translate('Name'), text('name', { autoFocus: true }))}
      {field('nodes', translate('Nodes'), count('nodes', 1))}
      {field('group', translate('Group'), <Groups context={context} value={form.group} onChange={group => set({ group })} />)}
      {field('priority', translate('Priority'), <Priorities value={form.priority} onChange={priority => set({ priority })} />)}
      {field('environment', translate('Environment'), <Environments context={context} value={form.environment} onChange={environment => set({ environment })} />)}
      {field('tags', translate('Tags'), text('tags'))}
      {field('timeLimit', translate('Time limit'), text('timeLimit', { placeholder: '2h30m' }))}
      {field('maxRetries', translate('Retries'), count('maxRetries', 0))}
      {field('after', translate('After tasks'), <After context={context} value={form.after} onChange={after => set({ after })} />)}
      {!/\.ya?ml$/.test(path) && field('parameters', parameters, area('parameters', 3), true)}
      {field('variables', translate('Variables, one NAME=VALUE a line'), area('variables', 2), true)}
    </div>
  );
}

interface ResettableFieldProps {
  context: Context;
  label: string;
  wide: boolean;
  edited: boolean;
  onReset: () => void;
  children: JSX.Element;
}

/** A field that can be reset. The button is outside the label, because a label passes every click to its input. */
function ResettableField(props: ResettableFieldProps): JSX.Element {
  const { context, label, edited } = props;
  const id = React.useId();
  return (
    <div className={`hai-field ${props.wide ? 'hai-wide' : ''} ${edited ? 'hai-edited' : ''}`}>
      <span className="hai-pair">
        <label htmlFor={id}>{label}</label>
        {edited && (
          <button className="hai-link" title={context.translate('As it was')} aria-label={`${label}: ${context.translate('As it was')}`} onClick={props.onReset}>
            ↺
          </button>
        )}
      </span>
      {React.cloneElement(props.children, { id })}
    </div>
  );
}

interface Choice<T> {
  id?: string;
  value: T;
  onChange: (value: T) => void;
}

function Groups(props: Choice<string> & { context: Context }): JSX.Element {
  const { context, id, value, onChange } = props;
  const groups = useLoaded(() => context.api.groups(), []).value ?? [];
  return (
    <select id={id} className="hai-input" value={value} onChange={event => onChange(event.target.value)}>
      {groups.every(group => group.name !== value) && <option value={value}>{value}</option>}
      {groups.map(group => (
        <option key={group.name} value={group.name}>
          {context.translate('{name} ({free} of {all} free)', { name: group.name, free: group.free_nodes, all: group.usable_nodes })}
        </option>
      ))}
    </select>
  );
}

/** Numbers of tasks to wait for; the list offers the user's unfinished tasks. */
function After(props: Choice<string> & { context: Context }): JSX.Element {
  const { context, id, value, onChange } = props;
  const me = context.me()?.user;
  const mine = context.store.rows.filter(task => task.state !== 'FINISHED' && task.user === me);
  const before = value.replace(/[^\s,]*$/, '');
  return (
    <>
      <input
        id={id}
        className="hai-input"
        list="hai-after"
        value={value}
        placeholder={context.translate('such as 12 or 12:ended')}
        onChange={event => onChange(event.target.value)}
      />
      <datalist id="hai-after">
        {mine.map(task => (
          <option key={task.id} value={`${before}${task.id}`} label={`#${task.id} ${task.name}`} />
        ))}
      </datalist>
    </>
  );
}

function Priorities(props: Choice<number>): JSX.Element {
  return (
    <select id={props.id} className="hai-input" value={props.value} onChange={event => props.onChange(Number(event.target.value))}>
      {levels.map(([number]) => (
        <option key={number} value={number}>
          {levelName(number)}
        </option>
      ))}
    </select>
  );
}

function Environments(props: Choice<string> & { context: Context }): JSX.Element {
  const { context, id, value, onChange } = props;
  const found = useLoaded(() => context.api.environments(), []);
  return (
    <>
      <input
        id={id}
        className="hai-input"
        list="hai-environments"
        value={value}
        placeholder={context.translate('none')}
        onChange={event => onChange(event.target.value)}
      />
      <datalist id="hai-environments">
        {found.value?.map(env => (
          <option key={`${env.owner}/${env.name}`} value={`${env.name}[${env.owner}]`} label={`${env.name}[${env.owner}]: ${aboutEnvironment(env)}`} />
        ))}
      </datalist>
    </>
  );
}
