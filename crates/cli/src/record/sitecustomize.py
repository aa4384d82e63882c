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

    elsewhere = [entry for entry in sys.path if os.path.abspath(entry or ".") not in sys._counterpoint_record]
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
    timed = 20  # steps timed after the recorded ones
    host = socket.gethostname().split(".")[0]
    # Variables that launchers set: rank, ranks, rank and ranks on the host. The innermost launcher comes first; Slurm sets
    # a rank in a batch script too, but the number of tasks of a step only where srun started the process.
    launchers = (
        ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
        ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
        ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
        ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_SIZE"),
        ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", ""),
    )
    launcher_names = (
        ("TORCHELASTIC_RUN_ID", "torchrun"),
        ("OMPI_COMM_WORLD_SIZE", "mpirun"),
        ("PMI_RANK", "mpiexec"),
        ("MV2_COMM_WORLD_SIZE", "mpirun"),
        ("SLURM_STEP_NUM_TASKS", "srun"),
    )
    # A launcher written in Python is not a rank, whatever started it.
    launching = ("torchrun", "torch.distributed.run", "torch.distributed.launch", "accelerate", "deepspeed")
    words = getattr(sys, "orig_argv", sys.argv)[:4]
    is_launcher = any(os.path.basename(word) in launching for word in words)
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

    def placed():
        """Rank, ranks, rank on the host, ranks on the host, as the launcher says; None where it does not."""
        for names in () if is_launcher else launchers:
            values = [os.environ.get(name, "") for name in names]
            if values[0].isdigit() and values[1].isdigit():
                return [int(value) if value.isdigit() else None for value in values]
        return [None] * 4

    def distributed():
        torch = sys.modules.get("torch")
        group = getattr(torch, "distributed", None) if torch else None
        if group is not None and group.is_available() and group.is_initialized():
            return group
        return None

    def rank_and_size():
        group = distributed()
        if group is not None:
            # Remembered: a job that ends well has destroyed its group before its last words.
            state.grouped = group.get_rank(), group.get_world_size()
        return state.grouped or tuple(placed()[:2])

    def file_name(rank, ending):
        who = "rank%d" % rank if rank is not None else "process"
        return os.path.join(folder, "%s.%s.%d.%s" % (who, host, os.getpid(), ending))

    def whole_or_not_at_all(path, fill):
        # Hidden, so that a diagnosis passes by what is not finished; the ending stays, it chooses the compression.
        temporary = os.path.join(folder, ".partial." + os.path.basename(path))
        try:
            fill(temporary)
            os.replace(temporary, path)
        except BaseException:
            try:
                os.unlink(temporary)
            except OSError:
                pass
            raise

    def write(path, text):
        def fill(temporary):
            with open(temporary, "w") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())

        whole_or_not_at_all(path, fill)

    def ranges(numbers):
        parts = []
        for value in sorted(numbers):
            if parts and parts[-1][1] == value - 1:
                parts[-1][1] = value
            else:
                parts.append([value, value])
        return ",".join("%d" % a if a == b else "%d-%d" % (a, b) for a, b in parts)

    def cores(processors):
        """Physical cores among logical processors."""
        siblings = set()
        for processor in processors:
            try:
                with open("/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list" % processor) as file:
                    siblings.add(file.read())
            except OSError:
                siblings.add(processor)
        return len(siblings)

    class State:
        pid = os.getpid()
        profile = None
        ours = False  # the profiler calls are this file's
        left_alone = False
        done = False
        seen = set()  # what has stepped since the last step ended
        count = 0
        step_range = None
        collection = None
        facts = {}
        facts_path = None
        grouped = None  # rank and ranks of the process group
        ends = []  # of steps after the recorded ones, nanoseconds
        undo = []  # gives the job's own functions back once nothing more is recorded

    state = State()

    @guarded
    def write_facts():
        """What this process is and where it runs."""
        rank, size = rank_and_size()
        facts = state.facts
        if size is not None:
            facts["job.world_size"] = size
        _, _, local, local_size = placed()
        if local is not None:
            facts["process.local_rank"] = local
        if local_size is not None:
            facts["process.local_size"] = local_size
        started_by = [name for variable, name in launcher_names if variable in os.environ]
        if started_by and not is_launcher:
            facts["job.launcher"] = started_by[0]
        facts["process.command"] = " ".join(getattr(sys, "orig_argv", sys.argv)[:4])[:200]
        facts["python.version"] = sys.version.split()[0]
        if hasattr(os, "sched_getaffinity"):
            allowed = os.sched_getaffinity(0)
            facts["process.affinity"] = ranges(allowed)
            facts["binding.cores"] = cores(allowed)
            facts["binding.machine_cores"] = cores(range(os.cpu_count() or 0))
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
        if "torch.optim.optimizer" in sys.modules and not state.done:
            facts["record.steps_seen"] = state.count
        document = {"schema": "counterpoint.record/1", "rank": rank, "host": host, "pid": os.getpid(), "facts": facts}
        path = file_name(rank, "facts.json")
        write(path, json.dumps(document) + "\n")
        if state.facts_path not in (None, path):
            # The process group gave another rank than the launcher.
            os.unlink(state.facts_path)
        state.facts_path = path

    @guarded
    def describe_host():
        """Where no `counterpoint record` runs on this host, the first process here starts what describes it."""
        script = os.path.join(folder, ".hook", "host.sh")
        if os.path.exists(os.path.join(folder, ".hook", "claim.%s" % host)) or not os.path.exists(script):
            return
        import subprocess

        # Its parent must not be the job, which may wait for all of its children.
        line = ["sh", "-c", 'sh "$0" "$1" "$2" &', script, folder, str(os.getpid())]
        nothing = subprocess.DEVNULL
        subprocess.call(line, stdin=nothing, stdout=nothing, stderr=nothing)

    # One file of facts for the job's first process, and one for each process that a launcher made a rank.
    owner = os.environ.get("COUNTERPOINT_RECORD_OWNER")
    own_rank = placed()[0]
    if owner is None or (own_rank is not None and owner != "rank %d" % own_rank):
        os.environ["COUNTERPOINT_RECORD_OWNER"] = "rank %d" % own_rank if own_rank is not None else "first"
        write_facts()
        describe_host()

    def recording():
        """Whether this process is being recorded; a child that was forked off meanwhile is not."""
        return state.profile is not None and os.getpid() == state.pid

    def marked(name):
        """A range in the trace, entered by the caller."""
        mark = sys.modules["torch"].autograd.profiler.record_function(name)
        mark.__enter__()
        return mark

    @guarded
    def on_collection(phase, information):
        if not recording():
            return
        if phase == "start":
            state.collection = marked("counterpoint.gc")
        elif state.collection is not None:
            state.collection.__exit__(None, None, None)
            state.collection = None

    def begin():
        from torch.profiler import ProfilerActivity, profile
        import multiprocessing.util
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
        # A child of multiprocessing ends without the handlers of atexit.
        multiprocessing.util.Finalize(None, at_exit, exitpriority=0)

    def close_step():
        if state.step_range is not None:
            state.step_range.__exit__(None, None, None)
            state.step_range = None

    def release():
        """Gives the job its own functions back; yields the profiler where one ran."""
        own, state.profile = state.profile, None
        while state.undo:
            state.undo.pop()()
        if on_collection in gc.callbacks:
            gc.callbacks.remove(on_collection)
        if own is not None:
            close_step()
        return own

    def save_trace(own, path):
        # PyTorch compresses line by line, which takes five times as long.
        import gzip
        import shutil

        plain = path[: -len(".gz")]
        try:
            own.export_chrome_trace(plain)
            with open(plain, "rb") as source, gzip.open(path, "wb", compresslevel=6) as target:
                shutil.copyfileobj(source, target, 1 << 20)
        finally:
            os.unlink(plain)

    def end():
        state.done = True
        own = release()
        if own is None:
            return
        state.ours = True
        try:
            if hasattr(own.profiler, "acc_events"):
                # Asked for at the start, since PyTorch warns without it; now it would turn every event into a Python
                # object, which takes longer than all the rest and is of no use here.
                own.profiler.acc_events = False
            own.stop()
            rank, size = rank_and_size()
            if rank is not None and distributed() is None:
                document = {"backend": "none", "rank": rank, "world_size": size or rank + 1}
                own.add_metadata_json("distributedInfo", json.dumps(document))
            whole_or_not_at_all(file_name(rank, "trace.json.gz"), lambda path: save_trace(own, path))
        finally:
            state.ours = False
        write_facts()

    def time_step():
        """What a step takes without the recorder, which makes every operator dearer. The host runs at the device's pace
        once the queue of launches is full; the first steps fill it again."""
        state.ends.append(time.perf_counter_ns())
        settled = sorted(b - a for a, b in zip(state.ends[2:], state.ends[3:]))
        if len(settled) >= 5:
            state.facts["steps.unrecorded_ns"] = settled[len(settled) // 2]
        if len(settled) == timed:
            write_facts()

    @guarded
    def on_step(optimizer, *_):
        if state.left_alone or len(state.ends) == timed + 3:
            return
        if os.getpid() != state.pid:
            if state.done:
                return
            # A child that was forked off: its parent's counts are not its own.
            state.pid, state.profile, state.count, state.step_range = os.getpid(), None, 0, None
            state.seen, state.facts_path, state.grouped = set(), None, None
        # A step ends where an optimizer comes round again with the same parameters: several optimizers take turns
        # within one step, and sharded ones step once per group of parameters.
        first = next((id(one) for group in optimizer.param_groups for one in group["params"]), None)
        key = (id(optimizer), first)
        if state.seen and key not in state.seen:
            state.seen.add(key)
            return
        state.seen = {key}
        if state.done:
            time_step()
            return
        state.count += 1
        if state.count < warmup:
            return
        if state.count == warmup:
            begin()
        close_step()
        # The first and last recorded step are at the edge and count for little.
        if state.count >= warmup + steps + 2:
            end()
            return
        state.step_range = marked("counterpoint.step#%d" % (state.count + 1))

    @guarded
    def at_exit():
        if os.getpid() != state.pid:
            return
        if recording():
            torch = sys.modules["torch"]
            if getattr(sys, "last_value", None) is not None and torch.cuda.is_initialized():
                # Ending the profile waits for the device, which may wait for a rank that is gone.
                release()
                say("the job failed within the recorded steps: no trace of this process")
            else:
                end()
        elif 0 < state.count < warmup and not state.left_alone:
            ends = state.count, warmup
            say("the job ended at step %d, and recording begins after step %d: no trace; see --warmup" % ends)
        if state.facts_path is not None:
            write_facts()

    atexit.register(at_exit)

    def leave_alone(what):
        if state.left_alone or state.done:
            return
        state.left_alone = True
        say("%s: the job is left alone; hand its own traces to counterpoint diagnose" % what)
        # Two profilers cannot run at once: ours gives way.
        own = release()
        if own is not None:
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
            if not recording():
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
            if not recording():
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

    for name in [name for name in hooks if name in sys.modules]:
        guarded(hooks.pop(name))(sys.modules[name])
    sys.meta_path.insert(0, Finder)


# One `counterpoint record` inside another chains this file to its like: the first one records, each is passed by once.
sys._counterpoint_record = getattr(sys, "_counterpoint_record", [])
sys._counterpoint_record.append(os.path.dirname(os.path.abspath(__file__)))
try:
    if len(sys._counterpoint_record) == 1:
        _start()
except Exception as error:
    try:
        sys.stderr.write("counterpoint record: %s: %s; the job goes on\n" % (type(error).__name__, error))
    except Exception:
        pass
_chain()
