"""How numba compiles functions that only kernels call.

By default numba optimises a function and emits its machine code, and does so again as a part of
each function that calls it. Here both are left to the kernel that contains it: a first call takes
two thirds of the time.
"""

# mypy: ignore-errors

from numba import _dynfunc
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import register_pass
from numba.core.typed_passes import NativeLowering


class _LinkedLibrary(JITCodeLibrary):
    """The code of a function for other libraries to link, of which no machine code is emitted."""

    def _optimize_final_module(self):
        pass

    def _finalize_final_module(self):
        self._finalize_dynamic_globals()
        self._verify_declare_only_symbols()
        self._finalized = True


@register_pass(mutates_CFG=True, analysis_only=False)
class _LowerForLinking(NativeLowering):
    _name = "tauflow_lower_for_linking"

    def run_pass(self, state):
        context = state.targetctx
        state.flags.no_compile = True
        state.library = library = _LinkedLibrary(context.codegen(), state.func_id.func_qualname)
        library.enable_object_caching()
        super().run_pass(state)
        lowered = state["cr"]
        # What callers know the function by; Python cannot call it.
        name = lowered.fndesc.qualname.split(".")[-1]
        key = _dynfunc.make_function(
            lowered.fndesc.lookup_module(), name, "", 0, lowered.env, (library,)
        )
        context.insert_user_function(key, lowered.fndesc, [library])
        state.reload_init.extend(getattr(library, "_reload_init", ()))  # numba 0.61 has none
        state["cr"] = lowered._replace(cfunc=key)
        return True


class LinkedCompiler(CompilerBase):
    """The compiler of functions that only kernels call, as numba's ``pipeline_class``."""

    def define_pipelines(self):
        """Return numba's pipeline with another last pass."""
        pipeline = DefaultPassBuilder.define_nopython_pipeline(self.state)
        pipeline.passes = [
            (_LowerForLinking if kind is NativeLowering else kind, description)
            for kind, description in pipeline.passes
        ]
        pipeline.finalize()
        return [pipeline]
