# fusebox: `make demo` and `make test` do everything on a fresh Debian or Ubuntu; `make help` lists the targets.

# What the distribution must have. The one list of packages; `make packages` installs what is missing.
PACKAGES := build-essential pkg-config libopenblas-openmp-dev libjansson-dev libpcre2-dev libstb-dev libutf8proc-dev \
    libxxhash-dev zlib1g-dev libjpeg-dev libdnnl-dev libedit-dev
TEST_PACKAGES := libcmocka-dev libopenmpi-dev openmpi-bin
IMAGE_PACKAGES := dataset-fashion-mnist
FUZZ_PACKAGES := clang libclang-rt-dev llvm

CUDA_HOME ?= $(patsubst %/bin/nvcc,%,$(firstword $(realpath $(shell command -v nvcc)) $(wildcard /usr/local/cuda/bin/nvcc)))
CUDA ?= $(if $(CUDA_HOME),1,0)
NVCC := $(CUDA_HOME)/bin/nvcc
# The present GPU, or where there is none Hopper, whose own instructions need the "a".
GPU := $(if $(filter 1,$(CUDA)),$(sort $(subst .,,$(shell nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null))))
GPU_TARGETS ?= $(or $(patsubst 90,90a,$(GPU)),90a)
ARCH ?= native

BUILD ?= build
# `make V=1` shows the commands; otherwise each file has a short line.
say = $(if $(filter-out 0,$(V)),,@printf '  %-4s  %s\n' $1 '$(2:$(BUILD)/%=%)' && )
CFLAGS := -std=gnu11 -O3 -g1 -march=$(ARCH) -fopenmp -fno-math-errno -fno-trapping-math \
    -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wswitch-enum -Wno-unknown-pragmas \
    -Wno-unknown-warning-option -Wno-pass-failed -Wno-format-truncation -Werror -MMD -MP -I. $(EXTRA)
NVCCFLAGS := -std=c++17 -O3 -lineinfo $(foreach t,$(GPU_TARGETS),-gencode arch=compute_$(t),code=sm_$(t)) \
    -Xcompiler -Wall,-Wextra,-Werror -Werror all-warnings -MMD -MP -I.
LDLIBS := -lopenblas -ljansson -lpcre2-8 -l:libutf8proc.a -lz -ljpeg -lm -lpthread -fopenmp $(EXTRA)
LINK := $(CC)
# Without it pragmas use no parameters, and its functions are the library's still.
ifneq ($(filter -fno-openmp,$(EXTRA)),)
CFLAGS += -Wno-unused-parameter
LDLIBS += -lgomp
endif

SOURCES := $(filter-out tasks/chat/libedit/%,$(wildcard base/*.c data/*.c kernels/*.c kernels/*/*.c optim/*.c comm/*.c model/*.c run/*.c profile/*.c report/*.c tasks/*.c tasks/*/*.c tasks/*/*/*.c))
# Compiled once for each type that tensors may have: kernels/real.h.
NAIVE := $(filter %/cpu_naive.c,$(SOURCES))
FUSED := $(filter %/cpu_fused.c,$(SOURCES))
OBJECTS := $(patsubst %.c,$(BUILD)/%.o,$(filter-out $(NAIVE) $(FUSED),$(SOURCES))) \
    $(foreach t,float bf16 double,$(NAIVE:%.c=$(BUILD)/%_$t.o)) $(foreach t,float bf16,$(FUSED:%.c=$(BUILD)/%_$t.o))
# The reader's table of what the comments beside the kernels say, which needs no nvcc.
KERNELS := $(wildcard comm/*.cu kernels/*/*.cu kernels/*/*.cuh optim/*.cu)
OBJECTS += $(patsubst %.c,$(BUILD)/%_rows.o,$(wildcard report/anatomy.c))
ifeq ($(CUDA),1)
OBJECTS += $(patsubst %.cu,$(BUILD)/%.cu.o,$(wildcard comm/*.cu kernels/*/*.cu optim/*.cu))
LDLIBS += -L$(CUDA_HOME)/lib64 -Wl,-rpath,$(CUDA_HOME)/lib64 -lcudart_static -ldl -lrt
LINK := $(CXX)
# The profiler's best source is opened at run time; its headers are needed here. Without, CUDA events do.
CUPTI := $(dir $(firstword $(shell grep -ls cuptiSubscribe_v2 $(CUDA_HOME)/include/cupti_callbacks.h \
    $(CUDA_HOME)/extras/CUPTI/include/cupti_callbacks.h)))
ifneq ($(CUPTI),)
OBJECTS += $(patsubst %.c,$(BUILD)/%.o,$(wildcard profile/cupti/*.c))
LDLIBS += -Wl,-rpath,$(CUDA_HOME)/extras/CUPTI/lib64
$(BUILD)/profile/cupti/%.o: CFLAGS += -isystem $(CUPTI) -isystem $(CUDA_HOME)/include
endif
endif
# oneDNN multiplies on the CPU. Without, OpenBLAS does.
DNNL ?= $(if $(wildcard /usr/include/oneapi/dnnl/dnnl.h /usr/local/include/oneapi/dnnl/dnnl.h),1,0)
ifeq ($(DNNL),1)
OBJECTS += $(patsubst %.c,$(BUILD)/%.o,$(wildcard kernels/device/onednn/*.c))
LDLIBS += -ldnnl
endif
# A conversation's lines are edited by libedit. Without, the terminal reads them.
EDIT ?= $(if $(wildcard /usr/include/histedit.h /usr/local/include/histedit.h),1,0)
ifeq ($(EDIT),1)
OBJECTS += $(patsubst %.c,$(BUILD)/%.o,$(wildcard tasks/chat/libedit/*.c))
LDLIBS += -ledit
endif
# Ranks on the CPU: a module that is opened when it is needed, built where there is an MPI.
MPICC := $(shell command -v mpicc)
MPI_MODULE := $(if $(MPICC),$(BUILD)/comm_mpi.so)
TESTS := $(patsubst tests/%.c,$(BUILD)/tests/%,$(wildcard tests/test_*.c))
LONGEST := $(patsubst %,$(BUILD)/tests/test_%,ranks rotary curves)
BENCHES := $(patsubst tests/%.c,$(BUILD)/%,$(wildcard tests/bench/*.c))
# One program, with a name for each door.
FUZZERS := $(patsubst tests/fuzz/%.c,$(BUILD)/%,$(wildcard tests/fuzz/fuzz_*.c))
# What the doors stand on, compiled for them alone, with every contract but no forms: the linker takes what it needs.
FUZZED := $(filter $(addprefix $(BUILD)/,base/% data/% comm/% profile/% report/% kernels/device/% kernels/gemm/% \
    $(join $(wildcard kernels/*),$(patsubst kernels/%,/%.o,$(wildcard kernels/*))) \
    $(addprefix kernels/,check.o ctx.o guard.o op.o record.o slot.o) $(addprefix optim/,adamw.o schedule.o) \
    $(addprefix model/,architectures.o checkpoint% config% parameter% scales.o shards.o) \
    tasks/% $(addprefix run/,compute_options% facts% peaks% profiling_options% train_options%)),$(OBJECTS))
# What tests/fuzz/scratch.c answers in the place of base/files.h and base/directories.h, and wires.c of comm/wire.h.
FUZZ_WRAPPED := file_map file_unmap file_read file_write path_kind path_glob path_in_cache gzopen \
    $(addprefix directory_,list lock make remove discard stage publish) $(addprefix file_writer_,open append write_at seeks close abandon) wire_listen wire_connect wire_accept wire_ready wire_receive wire_send device_clock
FUZZ_SECONDS ?= 20
# Operations and steps on the GPU; and those whose threads exchange through shared memory by ordinary stores. Of asynchronous copies
# that arrive at barriers racecheck knows too little: it reports races in attention's backward pass, as in cuBLAS's own kernels.
# Ranks read what another process has written, which initcheck takes for unwritten, as it does what some of cuBLASLt's kernels have: in
# its own sums of parts, and wherever a whole model goes on from a product. Those run with memory that is full of NaN instead.
MEMCHECKED := $(patsubst %,$(BUILD)/tests/test_%,attention loss linear gemm products swiglu norm norm_rms embed dropout \
    gather patch pool rotary decode generate adamw adamw_steps accumulate replay)
INITCHECKED := $(filter-out %_decode %_generate %_replay,$(MEMCHECKED))
RACECHECKED := $(patsubst %,$(BUILD)/tests/test_%,gemm norm norm_rms embed)
RANKCHECKED := $(BUILD)/tests/test_peers
SUPPORT := $(patsubst %.c,$(BUILD)/%.o,$(wildcard tests/support/*.c))
ifeq ($(MAKELEVEL),0)
MAKEFLAGS += -j$(shell nproc)
endif

.PHONY: all help packages demo demo-images install uninstall test check tests bench bench-rooms profiles path sanitize sanitize-gpu attack fuzz fuzzers format clean \
    ALWAYS
.SECONDARY:

all: train infer tools/profile $(MPI_MODULE)  ## build ./train, ./infer and tools/profile (the default)
	@$(if $(filter 0,$(CUDA)),echo "built for the CPU only (no nvcc here or CUDA=0)",:)

help:  ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | expand -t 14
	@echo 'variables: CUDA=0 (CPU only), DNNL=0 (without oneDNN), EDIT=0 (without libedit), GPU_TARGETS="80 90a", ARCH=native, BUILD=build, V=1 (show the commands)'

packages:
	@tools/packages $(PACKAGES) $(EXTRA_PACKAGES)

demo: packages  ## install what is missing, build, train a small GPT on this checkout and let it write
	@$(MAKE) --no-print-directory all
	@tools/demo

demo-images: EXTRA_PACKAGES := $(IMAGE_PACKAGES)
demo-images: packages  ## install Fashion-MNIST, train a small vision Transformer on it, judge it
	@$(MAKE) --no-print-directory all
	@tools/demo-images

test: EXTRA_PACKAGES := $(TEST_PACKAGES)
test: packages  ## install what is missing, build, run every test
	@$(MAKE) --no-print-directory all check

# One more at a time than two cores have, since some wait for most of their time, and the longest first; on a GPU, whose
# memory and clock they would share, one.
check: tests
	@JOBS=$(if $(GPU),1,3) tests/run $(LONGEST) $(filter-out $(LONGEST),$(TESTS))

tests: $(BUILD)/train $(BUILD)/infer $(BUILD)/tools/profile $(MPI_MODULE) $(BENCHES) $(TESTS)

# ARGS, such as --only=step124,attention --out=FILE: tests/bench/run --help. LLMC=PATH names llm.c's train_gpt2cu,
# or where there is no GPU its train_gpt2, and a build of it with T = 256 beside it as train_gpt2-256.
bench: $(BUILD)/train $(BUILD)/infer $(BENCHES)  ## time everything that has a target; PEERS=1: PyTorch too; ARGS=--help
	@tests/bench/run --build=$(BUILD) $(if $(filter-out 0,$(PEERS)),--peers) $(if $(LLMC),--llmc=$(LLMC)) $(ARGS)

bench-rooms: $(BUILD)/train  ## measure every operation, naive and fused; write the tables of the rooms' README files
	@tests/bench/rooms --build=$(BUILD) $(ARGS)

# The published sizes on a GPU, small ones on the CPU, whose page stays in the build. ARGS: tests/bench/profiles --help.
profiles: $(BUILD)/train $(BUILD)/infer $(BUILD)/bench/gelu $(BUILD)/bench/pictures  ## take the published profiles again; PEERS=1: PyTorch's too
	@tests/bench/profiles --build=$(BUILD) $(if $(filter-out 0,$(PEERS)),--peers) $(ARGS)

$(BUILD)/bench/gelu: $(if $(filter 1,$(CUDA)),$(BUILD)/tests/bench/gelu_cuda.cu.o)

# On the CPU, as that build's programs are.
path: train infer  ## draw what a step and a token execute, naive and fused, each as a file; print its lines; check it
	@CC='$(CC)' tools/path gpt2-nano --all --check --build=$(BUILD) $(ARGS)

# Without oneDNN, in whose threads the leak checker gets lost: so these are a build's without it, too.
sanitize:  ## the same tests on the CPU under address and undefined-behaviour sanitizers
	@$(MAKE) --no-print-directory CUDA=0 DNNL=0 BUILD=$(BUILD)/sanitize ARCH=$(ARCH) \
	    EXTRA="-fsanitize=address,undefined -fno-sanitize-recover=all -O2" check

sanitize-gpu: export CUDA_HOME := $(CUDA_HOME)
sanitize-gpu:  ## the operations' tests on the GPU under compute-sanitizer: memory, barriers, races
	@tests/sanitize-gpu
	@$(MAKE) --no-print-directory $(sort $(MEMCHECKED) $(RACECHECKED) $(RANKCHECKED)) $(BUILD)/attack/driver.so
	@LD_PRELOAD=$(abspath $(BUILD))/attack/driver.so ATTACK="nan 0 $(abspath $(BUILD))/attack/filled" tests/run $(MEMCHECKED)
	@tests/sanitize-gpu memcheck,synccheck $(MEMCHECKED)
	@tests/sanitize-gpu initcheck $(INITCHECKED)
	@tests/sanitize-gpu racecheck $(RACECHECKED)
	@tests/sanitize-gpu memcheck,synccheck $(RANKCHECKED)

fuzz: EXTRA_PACKAGES := $(FUZZ_PACKAGES)
fuzz: packages  ## feed mutated files to each reader of foreign bytes, FUZZ_SECONDS=20 each; prints how much of each they reach
	@$(MAKE) --no-print-directory CUDA=0 DNNL=0 BUILD=$(BUILD)/fuzz CC=clang FUZZ_SECONDS=$(FUZZ_SECONDS) fuzzers \
	    EXTRA="-fno-openmp -O1 -fno-sanitize-recover=all -fsanitize=fuzzer-no-link,address,undefined \
	    -fprofile-instr-generate -fcoverage-mapping"

# ARGS: tests/attack/run --help.
MINUTES ?= 30
attack: $(addprefix $(BUILD)/,train infer tools/profile attack/preload.so attack/driver.so attack/judge)  ## make everything fail that the programs stand on, MINUTES=30, or each EVERY=N-th case; JOBS=2
	@tests/attack/run --build=$(BUILD) $(if $(EVERY),--every=$(EVERY),--minutes=$(MINUTES)) $(if $(JOBS),--jobs=$(JOBS)) $(ARGS)

fuzzers: $(FUZZERS)
	@tests/fuzz/run $(FUZZ_SECONDS) $(BUILD)/fuzz $(FUZZERS:$(BUILD)/fuzz_%=%)

train infer: %: $(BUILD)/%
	@ln -sf $< $@

tools/profile: $(BUILD)/tools/profile
	@ln -sf $(abspath $<) $@

ALWAYS:

# With what a folder was built last: where that changes (CUDA=0, ARCH, EXTRA, ...), what depends on it is made anew.
$(BUILD)/cc.options: WITH := $(CC) $(CFLAGS)
$(BUILD)/nvcc.options: WITH := $(NVCC) $(NVCCFLAGS)
$(BUILD)/link.options: WITH := $(LINK) $(OBJECTS) $(LDLIBS)
$(BUILD)/%.options: ALWAYS
	@mkdir -p $(@D)
	@echo '$(WITH)' | cmp -s - $@ || echo '$(WITH)' >$@

# All but the programs' own files, put together once and not for each of a hundred programs.
$(BUILD)/fusebox.o: $(OBJECTS) $(BUILD)/link.options
	$(call say,LD,$@)$(LD) -r -o $@ $(OBJECTS)

# The reader of profiles needs nothing of the runtime.
$(BUILD)/tools/profile: $(filter $(BUILD)/base/% $(BUILD)/report/%,$(OBJECTS)) $(BUILD)/link.options
$(BUILD)/train $(BUILD)/infer: $(BUILD)/fusebox.o
$(BUILD)/train $(BUILD)/infer $(BUILD)/tools/profile: $(BUILD)/%: $(BUILD)/%.o
	$(call say,LD,$@)$(LINK) -o $@ $(filter %.o,$^) $(LDLIBS)

$(BUILD)/tests/%: $(BUILD)/tests/%.o $(SUPPORT) $(BUILD)/fusebox.o
	$(call say,LD,$@)$(LINK) -o $@ $(filter %.o,$^) -lcmocka $(LDLIBS)

# A CUPTI of the tests' own, which bears the name that the profiler looks for: what it does needs no GPU then.
ifneq ($(CUPTI),)
$(BUILD)/tests/test_cupti: $(BUILD)/tests/planted/libcupti.so
$(BUILD)/tests/planted/libcupti.so: CFLAGS += -isystem $(CUPTI) -isystem $(CUDA_HOME)/include -fPIC -shared \
    -Wl,-soname,libcupti.so.$(shell sed -n 's/^.define CUPTI_API_VERSION \([0-9]*\)....$$/\1/p' $(CUPTI)cupti_version.h)
$(BUILD)/tests/planted/libcupti.so: tests/planted/cupti.c tests/planted/planted.h $(BUILD)/cc.options
	@mkdir -p $(@D)
	$(call say,LD,$@)$(CC) $(CFLAGS) -o $@ $<
endif

$(BUILD)/attack/%.so: tests/attack/%.c $(BUILD)/cc.options
	@mkdir -p $(@D)
	$(call say,CC,$<)$(CC) $(CFLAGS) -fPIC -shared -o $@ $<

$(BUILD)/comm_mpi.so: comm/mpi/module.c comm/mpi_module.h $(BUILD)/cc.options
	@mkdir -p $(@D)
	$(call say,LD,$@)OMPI_CC='$(CC)' MPICH_CC='$(CC)' $(MPICC) $(CFLAGS) -fPIC -shared -o $@ $<

$(BUILD)/bench/%: $(BUILD)/tests/bench/%.o $(BUILD)/fusebox.o
	@mkdir -p $(@D)
	$(call say,LD,$@)$(LINK) -o $@ $(filter %.o,$^) $(LDLIBS)

$(BUILD)/attack/judge: $(BUILD)/tests/attack/judge.o $(BUILD)/fusebox.o
	@mkdir -p $(@D)
	$(call say,LD,$@)$(LINK) -o $@ $(filter %.o,$^) $(LDLIBS)

$(BUILD)/fuzzed.a: $(FUZZED)
	$(call say,AR,$@)rm -f $@ && ar rcs $@ $^

$(BUILD)/fuzz: $(patsubst %.c,$(BUILD)/%.o,$(wildcard tests/fuzz/*.c)) $(BUILD)/fuzzed.a $(BUILD)/link.options
	$(call say,LD,$@)$(CC) -fsanitize=fuzzer $(EXTRA) $(FUZZ_WRAPPED:%=-Wl,--wrap=%) -o $@ $(filter %.o %.a,$^) $(LDLIBS)

$(BUILD)/fuzz_%: $(BUILD)/fuzz
	@ln -sf fuzz $@

define TYPED_RULE
$(BUILD)/%_$1.o: %.c $(BUILD)/cc.options
	@mkdir -p $$(@D)
	$$(call say,CC,$$< ($1))$$(CC) $$(CFLAGS) -DSTORED=$1 -c -o $$@ $$<
endef
$(foreach t,float bf16 double,$(eval $(call TYPED_RULE,$t)))

# stb's arithmetic overflows where a file is damaged. Where such a file's bits run out stb shifts by more than 31, into pixels
# that mean nothing anyway; of an empty chunk it copies no bytes to no address.
$(BUILD)/tasks/pictures/images/stb.o $(BUILD)/tasks/pictures/images/write.o: CFLAGS += -fwrapv
$(BUILD)/tasks/pictures/images/stb.o: CFLAGS += -fno-sanitize=shift,nonnull-attribute

$(BUILD)/report/page.o $(BUILD)/report/sweep_page.o: $(wildcard report/page/*)

$(BUILD)/report/anatomy_rows.c: tools/anatomy $(KERNELS)
	@mkdir -p $(@D)
	@tools/anatomy $(KERNELS) >$@
$(BUILD)/report/anatomy_rows.o: $(BUILD)/report/anatomy_rows.c $(BUILD)/cc.options
	$(call say,CC,$<)$(CC) $(CFLAGS) -c -o $@ $<

# Profiles record the commit and the targets of the build.
COMMIT := $(shell git describe --always --dirty --exclude '*' 2>/dev/null)
$(BUILD)/commit.options: WITH := $(COMMIT)
$(BUILD)/base/version.o: CFLAGS += -DBUILT_COMMIT='"$(COMMIT)"' \
    -DBUILT_FOR='"-march=$(ARCH)$(if $(filter 1,$(CUDA)),$(GPU_TARGETS:%=, CUDA for sm_%))"'
$(BUILD)/base/version.o: $(BUILD)/commit.options

$(BUILD)/%.o: %.c $(BUILD)/cc.options
	@mkdir -p $(@D)
	$(call say,CC,$<)$(CC) $(CFLAGS) -c -o $@ $<

$(BUILD)/%.cu.o: %.cu $(BUILD)/nvcc.options
	@mkdir -p $(@D)
	$(call say,NVCC,$<)$(NVCC) $(NVCCFLAGS) -c -o $@ $<

# The programs lie together, since ./train opens the module beside it; the links' names do not collide with others.
PREFIX ?= /usr/local
install: all  ## install fusebox-train, -infer and -profile, manuals and completion; PREFIX=/usr/local, DESTDIR=
	@install -d $(addprefix $(DESTDIR)$(PREFIX)/,bin lib/fusebox share/man/man1 share/bash-completion/completions \
	    share/zsh/site-functions)
	@install $(BUILD)/train $(BUILD)/infer $(BUILD)/tools/profile $(MPI_MODULE) $(DESTDIR)$(PREFIX)/lib/fusebox
	@for p in train infer profile; do ln -sf ../lib/fusebox/$$p $(DESTDIR)$(PREFIX)/bin/fusebox-$$p; done
	@cd $(DESTDIR)$(PREFIX) && lib/fusebox/profile --manual >share/man/man1/fusebox-profile.1 && for p in train infer; do \
	    lib/fusebox/$$p --manual >share/man/man1/fusebox-$$p.1 && \
	    lib/fusebox/$$p --completion-bash >share/bash-completion/completions/fusebox-$$p && \
	    lib/fusebox/$$p --completion-zsh >share/zsh/site-functions/_fusebox-$$p || exit 1; done

uninstall:  ## remove what install has put under PREFIX
	@cd $(DESTDIR)$(PREFIX) && rm -rf lib/fusebox && for p in train infer profile; do \
	    rm -f bin/fusebox-$$p share/man/man1/fusebox-$$p.1 share/bash-completion/completions/fusebox-$$p \
	        share/zsh/site-functions/_fusebox-$$p; done

format:  ## lay out the source with clang-format
	clang-format -i $$(git ls-files '*.c' '*.h' '*.cu' '*.cuh')

clean:  ## remove what was built
	rm -rf $(BUILD) train infer tools/profile

-include $(shell find $(BUILD) -name '*.d' 2>/dev/null)
