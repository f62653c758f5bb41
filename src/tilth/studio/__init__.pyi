from tilth.studio.app import make_app as make_app
from tilth.studio.serving import serve as serve
