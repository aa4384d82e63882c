"""Records some training steps of an unchanged PyTorch job, one trace and one file of facts per rank.

`counterpoint record` puts this file's folder first on PYTHONPATH; Python imports it in every process before the job.
It imports nothing heavy and waits until the job itself imports torch. Whatever goes wrong here is said on standard
error at most once and never reaches the job. Knows the folder and number of steps from COUNTERPOINT_RECORD*.
"""

import os
import sys


def _chain():
    """Runs the sitecustomize that this one stands in front of, if there is one."""
    import importlib.machinery
    import importlib.util

    own = os.path.dirname(os.path.abspath(__file__))
    elsewhere = [entry for entry in sys.path if os.path.abspath(entry or ".") != own]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", elsewhere)
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


def _start():
    folder = os.environ.get("COUNTERPOINT_RECORD")
    if not folder or not os.path.isdir(folder):
        return
    import atexit
    import gc
    import importlib.machinery
    import json
    import socket
    import time

    def number(name, default):
        try:
            return int(os.environ.get(name, ""))
        except ValueError:
            return default

    steps = number("COUNTERPOINT_RECORD_STEPS", 5)
    warmup = number("COUNTERPOINT_RECORD_WARMUP", 3)
    host = socket.gethostname().split(".")[0]
    rank_names = ("RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK", "SLURM_PROCID")
    size_names = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE", "SLURM_NTASKS")
    said = []

    def say(text):
        if text not in said:
            said.append(text)
            try:
                sys.stderr.write("counterpoint record: " + text + "\n")
            except Exception:
                pass

    def guarded(function):
        """What fails here must not fail the job."""

        def inner(*arguments, **named):
            try:
                return function(*arguments, **named)
            except Exception as error:
                say("%s: %s: %s; the job goes on" % (function.__name__, type(error).__name__, error))
                return None

        return inner

    def first_number(names):
        for name in names:
            value = os.environ.get(name, "")
            if value.isdigit():
                return int(value)
        return None

    def distributed():
        torch = sys.modules.get("torch")
        group = getattr(torch, "distributed", None) if torch else None
        if group is not None and group.is_available() and group.is_initialized():
            return group
        return None

    def rank_and_size():
        group = distributed()
        if group is not None:
            return group.get_rank(), group.get_world_size()
        return first_number(rank_names), first_number(size_names)

    def file_name(rank, ending):
        who = "rank%d" % rank if rank is not None else "process"
        return os.path.join(folder, "%s.%s.%d.%s" % (who, host, os.getpid(), ending))

    def write(path, text):
        temporary = path + ".partial"
        with open(temporary, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)

    def ranges(numbers):
        parts = []
        for value in sorted(numbers):
            if parts and parts[-1][1] == value - 1:
                parts[-1][1] = value
            else:
                parts.append([value, value])
        return ",".join("%d" % a if a == b else "%d-%d" % (a, b) for a, b in parts)

    class State:
        pid = os.getpid()
        profile = None
        ours = False  # the profiler calls are this file's
        left_alone = False
        done = False
        optimizer = None
        count = 0
        step_range = None
        collection = None
        facts = {}
        undo = []  # gives the job's own functions back once nothing more is recorded

    state = State()

    @guarded
    def write_facts():
        """What this process is and where it runs."""
        rank, size = rank_and_size()
        facts = state.facts
        if size is not None:
            facts["job.world_size"] = size
        local = first_number(("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID"))
        if local is not None:
            facts["process.local_rank"] = local
        facts["process.command"] = " ".join(getattr(sys, "orig_argv", sys.argv)[:4])[:200]
        facts["python.version"] = sys.version.split()[0]
        facts["host.processors"] = os.cpu_count() or 0
        if hasattr(os, "sched_getaffinity"):
            allowed = os.sched_getaffinity(0)
            facts["process.affinity"] = ranges(allowed)
            facts["process.affinity_count"] = len(allowed)
        try:
            import resource

            limits = (("memlock_kb", "MEMLOCK", 1024), ("open_files", "NOFILE", 1), ("stack_kb", "STACK", 1024))
            for name, limit, unit in limits:
                value = resource.getrlimit(getattr(resource, "RLIMIT_" + limit))[0]
                facts["limits." + name] = "unlimited" if value == resource.RLIM_INFINITY else value // unit
        except Exception:
            pass
        torch = sys.modules.get("torch")
        if torch is not None and hasattr(torch, "version"):
            facts["torch.version"] = str(torch.__version__)
            facts["torch.threads"] = torch.get_num_threads()
            facts["torch.cudnn_benchmark"] = int(torch.backends.cudnn.benchmark)
            if torch.version.cuda:
                facts["cuda.version"] = str(torch.version.cuda)
            if torch.cuda.is_available() and torch.cuda.is_initialized():
                device = torch.cuda.current_device()
                facts["device.%d.name" % device] = torch.cuda.get_device_name(device)
                peak = torch.cuda.max_memory_allocated(device)
                if peak:
                    facts["memory.peak_bytes"] = peak
            group = distributed()
            if group is not None:
                facts["job.backend"] = group.get_backend()
        document = {"schema": "counterpoint.record/1", "rank": rank, "host": host, "pid": os.getpid(), "facts": facts}
        write(file_name(rank, "facts.json"), json.dumps(document) + "\n")

    # One file of facts for the job's first process, and one for each process that a launcher made a rank.
    owner = os.environ.get("COUNTERPOINT_RECORD_OWNER")
    own_rank = first_number(rank_names)
    if owner is None or (own_rank is not None and owner != "rank %d" % own_rank):
        os.environ["COUNTERPOINT_RECORD_OWNER"] = "rank %d" % own_rank if own_rank is not None else "first"
        write_facts()

    def marked(name):
        """A range in the trace, entered by the caller."""
        mark = sys.modules["torch"].autograd.profiler.record_function(name)
        mark.__enter__()
        return mark

    @guarded
    def on_collection(phase, information):
        if state.profile is None or os.getpid() != state.pid:
            return
        if phase == "start":
            state.collection = marked("counterpoint.gc")
        elif state.collection is not None:
            state.collection.__exit__(None, None, None)
            state.collection = None

    def begin():
        from torch.profiler import ProfilerActivity, profile
        import torch

        activities = [ProfilerActivity.CPU]
        if torch.cuda.is_available():
            activities.append(ProfilerActivity.CUDA)
        state.ours = True
        try:
            options = {}
            try:
                from torch._C._profiler import _ExperimentalConfig

                options["experimental_config"] = _ExperimentalConfig(enable_cuda_sync_events=True)
            except Exception:
                pass
            own = profile(activities=activities, record_shapes=True, acc_events=True, **options)
        except TypeError:
            own = profile(activities=activities, record_shapes=True)
        try:
            own.start()
            state.profile = own
        finally:
            state.ours = False
        gc.callbacks.append(on_collection)

    def end():
        own, state.profile = state.profile, None
        state.done = True
        while state.undo:
            state.undo.pop()()
        if on_collection in gc.callbacks:
            gc.callbacks.remove(on_collection)
        if state.step_range is not None:
            state.step_range.__exit__(None, None, None)
            state.step_range = None
        if own is None:
            return
        state.ours = True
        try:
            own.stop()
            rank, size = rank_and_size()
            if rank is not None and distributed() is None:
                document = {"backend": "none", "rank": rank, "world_size": size or rank + 1}
                own.add_metadata_json("distributedInfo", json.dumps(document))
            path = file_name(rank, "trace.json.gz")
            temporary = os.path.join(folder, ".partial.%s" % os.path.basename(path))
            own.export_chrome_trace(temporary)
            os.replace(temporary, path)
        finally:
            state.ours = False
        write_facts()

    @guarded
    def on_step(optimizer, *_):
        if state.done or state.left_alone:
            return
        if os.getpid() != state.pid:
            # A child that was forked off: its parent's counts are not its own.
            state.pid, state.profile, state.optimizer, state.count, state.step_range = os.getpid(), None, None, 0, None
        if state.optimizer is None:
            state.optimizer = id(optimizer)
        if id(optimizer) != state.optimizer:
            # Several optimizers take turns within one step: the first one counts.
            return
        state.count += 1
        if state.count < warmup:
            return
        if state.count == warmup:
            begin()
        if state.step_range is not None:
            state.step_range.__exit__(None, None, None)
            state.step_range = None
        # The first and last recorded step are at the edge and count for little.
        if state.count >= warmup + steps + 2:
            end()
            return
        state.step_range = marked("counterpoint.step#%d" % (state.count + 1))

    @guarded
    def at_exit():
        if os.getpid() == state.pid and state.profile is not None:
            end()

    atexit.register(at_exit)

    def leave_alone(what):
        if state.left_alone:
            return
        state.left_alone = True
        while state.undo:
            state.undo.pop()()
        say("%s: the job is left alone; hand its own traces to counterpoint diagnose" % what)
        if state.profile is not None:
            # Two profilers cannot run at once: ours gives way.
            own, state.profile = state.profile, None
            if state.step_range is not None:
                state.step_range.__exit__(None, None, None)
                state.step_range = None
            if on_collection in gc.callbacks:
                gc.callbacks.remove(on_collection)
            state.ours = True
            try:
                own.stop()
            finally:
                state.ours = False

    if os.environ.get("NSYS_PROFILING_SESSION_ID"):
        state.left_alone = True
        say("this job runs under Nsight Systems: the job is left alone; hand its report to counterpoint diagnose")

    # What is done to a module right after the job has imported it.

    def on_optimizer(module):
        module.register_optimizer_step_post_hook(on_step)

    def on_loader(module):
        base = module._BaseDataLoaderIter
        original = base.__next__

        def __next__(self):
            if state.profile is None:
                return original(self)
            mark = marked("counterpoint.data")
            try:
                return original(self)
            finally:
                mark.__exit__(None, None, None)

        base.__next__ = __next__
        state.undo.append(lambda: setattr(base, "__next__", original))

    def on_serialization(module):
        original = module.save

        def save(*arguments, **named):
            if state.profile is None:
                return original(*arguments, **named)
            mark = marked("counterpoint.save")
            try:
                return original(*arguments, **named)
            finally:
                mark.__exit__(None, None, None)

        save.__doc__, save.__wrapped__ = original.__doc__, original
        module.save = save

    def on_profiler(module):
        base = module.profile
        original = base.__enter__
        prepare = getattr(base, "_prepare_trace", None)

        def __enter__(self):
            if not state.ours:
                guarded(leave_alone)("this job profiles itself")
            return original(self)

        base.__enter__ = __enter__
        if prepare is not None:
            # torch.profiler does not enter the older profiler, it prepares and starts it.
            def _prepare_trace(self):
                if not state.ours:
                    guarded(leave_alone)("this job profiles itself")
                return prepare(self)

            base._prepare_trace = _prepare_trace

    hooks = {
        "torch.optim.optimizer": on_optimizer,
        "torch.utils.data.dataloader": on_loader,
        "torch.serialization": on_serialization,
        "torch.autograd.profiler": on_profiler,
    }

    class Finder:
        """Finds what the others find, and adds a hook behind the module's own code."""

        @staticmethod
        def find_spec(name, path=None, target=None):
            hook = hooks.pop(name, None)
            if hook is None:
                return None
            spec = importlib.machinery.PathFinder.find_spec(name, path, target)
            if spec is None or spec.loader is None:
                return spec
            run = spec.loader.exec_module

            def exec_module(module):
                run(module)
                guarded(hook)(module)

            spec.loader.exec_module = exec_module
            return spec

    sys.meta_path.insert(0, Finder)


try:
    _start()
except Exception as error:
    try:
        sys.stderr.write("counterpoint record: %s: %s; the job goes on\n" % (type(error).__name__, error))
    except Exception:
        pass
_chain()
