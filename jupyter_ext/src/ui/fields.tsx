/** The fields of a submission. One that differs from how the file was submitted last is marked, and can be set back. */
import * as React from 'react';

import { Form } from '../model/form';
import { level, levels } from '../model/words';
import { Context, useLoaded } from './context';
import { aboutEnvironment } from './environments';

interface Props {
  context: Context;
  form: Form;
  /** As it was before anything was typed. */
  begun: Form;
  /** Of what is submitted. */
  path: string;
  onChange: (form: Form) => void;
}

export function Fields(props: Props): JSX.Element {
  const { context, form, onChange, path } = props;
  const { say } = context;
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
    <Marked label={label} wide={wide} context={context} edited={form[key] !== props.begun[key]} onReset={() => set({ [key]: props.begun[key] })}>
      {input}
    </Marked>
  );
  const parameters = say(path.endsWith('.ipynb') ? 'Parameters, one name=value a line' : 'Parameters, one name=value a line (given as --name=value)');
  return (
    <div className="hai-fields">
      {field('name', say('Name'), text('name', { autoFocus: true }))}
      {field('nodes', say('Nodes'), count('nodes', 1))}
      {field('group', say('Group'), <Groups context={context} value={form.group} onChange={group => set({ group })} />)}
      {field('priority', say('Priority'), <Priorities value={form.priority} onChange={priority => set({ priority })} />)}
      {field('environment', say('Environment'), <Environments context={context} value={form.environment} onChange={environment => set({ environment })} />)}
      {field('tags', say('Tags'), text('tags'))}
      {field('timeLimit', say('Time limit'), text('timeLimit', { placeholder: '2h30m' }))}
      {field('maxRetries', say('Retries'), count('maxRetries', 0))}
      {field('after', say('After tasks'), <After context={context} value={form.after} onChange={after => set({ after })} />)}
      {!/\.ya?ml$/.test(path) && field('parameters', parameters, area('parameters', 3), true)}
      {field('variables', say('Variables, one NAME=VALUE a line'), area('variables', 2), true)}
    </div>
  );
}

interface MarkedProps {
  context: Context;
  label: string;
  wide: boolean;
  edited: boolean;
  onReset: () => void;
  children: JSX.Element;
}

/** The button stands beside the label, not in it: a label hands every click to its input. */
function Marked(props: MarkedProps): JSX.Element {
  const { context, label, edited } = props;
  const id = React.useId();
  return (
    <div className={`hai-field ${props.wide ? 'hai-wide' : ''} ${edited ? 'hai-edited' : ''}`}>
      <span className="hai-pair">
        <label htmlFor={id}>{label}</label>
        {edited && (
          <button className="hai-link" title={context.say('As it was')} aria-label={`${label}: ${context.say('As it was')}`} onClick={props.onReset}>
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
          {context.say('{name} ({free} of {all} free)', { name: group.name, free: group.free_nodes, all: group.usable_nodes })}
        </option>
      ))}
    </select>
  );
}

/** Numbers; the list that opens has the user's unfinished tasks, behind what was typed before. */
function After(props: Choice<string> & { context: Context }): JSX.Element {
  const { context, id, value, onChange } = props;
  const me = context.me()?.user;
  const mine = context.board.rows.filter(task => task.state !== 'FINISHED' && task.user === me);
  const before = value.replace(/[^\s,]*$/, '');
  return (
    <>
      <input
        id={id}
        className="hai-input"
        list="hai-after"
        value={value}
        placeholder={context.say('such as 12 or 12:ended')}
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
          {level(number)}
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
        placeholder={context.say('none')}
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
