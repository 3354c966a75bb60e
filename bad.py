import sys; sys.path.insert(0,'/tmp/s/onnx/tree')
import onnx, numpy as np, os, shutil
from onnx import helper
from models.onnx.graph import Graph
os.makedirs('/tmp/s/onnx/x/bad',exist_ok=True); os.chdir('/tmp/s/onnx/x/bad')
src='/tmp/s/onnx/dist/programs/mlp-fp32-onnx/model.onnx'
raw=open(src,'rb').read()
open('cut.onnx','wb').write(raw[:len(raw)//2]); open('empty.onnx','wb').write(b''); open('text.onnx','wb').write(b'hello world, not a model')
shutil.copy(src,'mine.onnx')
shutil.copy(src,'wrong.pte')
m=onnx.load(src); m.opset_import[0].version=99; onnx.save(m,'opset.onnx')
m=onnx.load(src); m.opset_import[0].version=26; onnx.save(m,'opset26.onnx')
m=onnx.load(src); m.ir_version=14; onnx.save(m,'ir.onnx')
m=onnx.load(src); m.graph.node[1].op_type='Frobnicate'; onnx.save(m,'unknown.onnx')
m=onnx.load(src); m.graph.node[1].domain='my.domain'; m.opset_import.append(helper.make_opsetid('my.domain',1)); onnx.save(m,'domain.onnx')
m=onnx.load(src); onnx.save(m,'ext.onnx',save_as_external_data=True,location='ext.weights',size_threshold=0)
m=onnx.load(src); onnx.save(m,'lost.onnx',save_as_external_data=True,location='lost.weights',size_threshold=0); os.unlink('lost.weights')
os.makedirs('sub',exist_ok=True); m=onnx.load(src); onnx.save(m,'sub.onnx',save_as_external_data=True,location='sub/w.bin',size_threshold=0)
