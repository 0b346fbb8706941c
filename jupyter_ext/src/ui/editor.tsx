/** Edits a task file in JupyterLab's editor. */
import { CodeEditor, IEditorServices } from '@jupyterlab/codeeditor';
import * as React from 'react';

/** Calls `onEdit` at each change; later changes of the initial text are ignored. */
export function Editor(props: { services: IEditorServices; text: string; onEdit: (text: string) => void }): JSX.Element {
  const host = React.useRef<HTMLDivElement>(null);
  const model = React.useMemo(() => new CodeEditor.Model({ mimeType: 'text/x-yaml' }), []);
  React.useEffect(() => {
    model.sharedModel.setSource(props.text);
    const editor = props.services.factoryService.newInlineEditor({ host: host.current!, model });
    model.sharedModel.changed.connect(() => props.onEdit(model.sharedModel.getSource()));
    return () => {
      editor.dispose();
      model.dispose();
    };
  }, []);
  return <div className="hai-editor jp-Editor" ref={host} />;
}
