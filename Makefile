# fusebox: `make demo` and `make test` do everything on a fresh Debian or Ubuntu; `make help` lists the targets.

# Packages of the distribution that a build needs; `make packages` installs those that are missing.
PACKAGES := build-essential pkg-config libopenblas-openmp-dev libjansson-dev libpcre2-dev libstb-dev libutf8proc-dev \
    libxxhash-dev zlib1g-dev libjpeg-dev libdnnl-dev libedit-dev
TEST_PACKAGES := libcmocka-dev libopenmpi-dev openmpi-bin
IMAGE_PACKAGES := dataset-fashion-mnist
FUZZ_PACKAGES := clang libclang-rt-dev llvm

CUDA_HOME ?= $(patsubst %/bin/nvcc,%,$(firstword $(realpath $(shell command -v nvcc)) $(wildcard /usr/local/cuda/bin/nvcc)))
CUDA ?= $(if $(CUDA_HOME),1,0)
NVCC := $(CUDA_HOME)/bin/nvcc
# This machine's GPU, or without one Hopper (its special instructions need the "a").
GPU := $(if $(filter 1,$(CUDA)),$(sort $(subst .,,$(shell nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null))))
GPU_TARGETS ?= $(or $(patsubst 90,90a,$(GPU)),90a)
ARCH ?= native

BUILD ?= build
# `make V=1` shows the commands; otherwise each file has a short line.
say = $(if $(filter-out 0,$(V)),,@printf '  %-4s  %s\n' $1 '$(2:$(BUILD)/%=%)' && )
CFLAGS := -std=gnu11 -O3 -g1 -march=$(ARCH) -fopenmp -fno-math-errno -fno-trapping-math \
    -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wswitch-enum -Wno-unknown-pragmas \
    -Wno-unknown-warning-option -Wno-pass-failed -Wno-format-truncation -Werror -MMD -MP -I. $(EXTRA)
# Else GCC uses halves of 64-byte vectors; with whole ones a step takes 5 to 7% less on a Xeon with AMX.
ifeq ($(shell uname -m),x86_64)
CFLAGS += -mprefer-vector-width=512
endif
NVCCFLAGS := -std=c++17 -O3 -lineinfo $(foreach t,$(GPU_TARGETS),-gencode arch=compute_$(t),code=sm_$(t)) \
    -Xcompiler -Wall,-Wextra,-Werror -Werror all-warnings -MMD -MP -I.
# Debian's other builds of OpenBLAS run threads beside OpenMP's, and the system prefers them if they are installed.
OPENBLAS := $(firstword $(wildcard /usr/lib/*/openblas-openmp))
LDLIBS := $(OPENBLAS:%=-L%) $(OPENBLAS:%=-Wl,-rpath,%) -lopenblas -ljansson -lpcre2-8 -l:libutf8proc.a -lz -ljpeg -lm -lpthread -fopenmp $(EXTRA)
LINK := $(CC)
# Without OpenMP, pragmas use no parameters, and the library still defines OpenMP's functions.
ifneq ($(filter -fno-openmp,$(EXTRA)),)
CFLAGS += -Wno-unused-parameter
LDLIBS += -lgomp
endif

SOURCES := $(filter-out tasks/chat/libedit/%,$(wildcard base/*.c data/*.c kernels/*.c kernels/*/*.c optim/*.c comm/*.c model/*.c run/*.c profile/*.c report/*.c tasks/*.c tasks/*/*.c tasks/*/*/*.c))
# Compiled once for each number type (kernels/real.h).
NAIVE := $(filter %/cpu_naive.c,$(SOURCES))
FUSED := $(filter %/cpu_fused.c,$(SOURCES))
OBJECTS := $(patsubst %.c,$(BUILD)/%.o,$(filter-out $(NAIVE) $(FUSED),$(SOURCES))) \
    $(foreach t,float bf16 double,$(NAIVE:%.c=$(BUILD)/%_$t.o)) $(foreach t,float bf16,$(FUSED:%.c=$(BUILD)/%_$t.o))
# The table of the kernels' anatomy comments, for reports; it needs no nvcc.
KERNELS := $(wildcard comm/*.cu kernels/*/*.cu kernels/*/*.cuh optim/*.cu)
OBJECTS += $(patsubst %.c,$(BUILD)/%_rows.o,$(wildcard report/anatomy.c))
ifeq ($(CUDA),1)
OBJECTS += $(patsubst %.cu,$(BUILD)/%.cu.o,$(wildcard comm/*.cu kernels/*/*.cu optim/*.cu))
LDLIBS += -L$(CUDA_HOME)/lib64 -Wl,-rpath,$(CUDA_HOME)/lib64 -lcudart_static -ldl -lrt
LINK := $(CXX)
# CUPTI, the profiler's best source, is loaded at run time, but a build needs its headers; without them CUDA events are used.
CUPTI := $(dir $(firstword $(shell grep -ls cuptiSubscribe_v2 $(CUDA_HOME)/include/cupti_callbacks.h \
    $(CUDA_HOME)/extras/CUPTI/include/cupti_callbacks.h)))
ifneq ($(CUPTI),)
OBJECTS += $(patsubst %.c,$(BUILD)/%.o,$(wildcard profile/cupti/*.c))
LDLIBS += -Wl,-rpath,$(CUDA_HOME)/extras/CUPTI/lib64
$(BUILD)/profile/cupti/%.o: CFLAGS += -isystem $(CUPTI) -isystem $(CUDA_HOME)/include
endif
endif
# oneDNN for matrix products on the CPU; without it OpenBLAS.
DNNL ?= $(if $(wildcard /usr/include/oneapi/dnnl/dnnl.h /usr/local/include/oneapi/dnnl/dnnl.h),1,0)
ifeq ($(DNNL),1)
OBJECTS += $(patsubst %.c,$(BUILD)/%.o,$(wildcard kernels/device/onednn/*.c))
LDLIBS += -ldnnl
endif
# libedit for line editing in conversations; without it the terminal reads lines.
EDIT ?= $(if $(wildcard /usr/include/histedit.h /usr/local/include/histedit.h),1,0)
ifeq ($(EDIT),1)
OBJECTS += $(patsubst %.c,$(BUILD)/%.o,$(wildcard tasks/chat/libedit/*.c))
LDLIBS += -ledit
endif
# A module for ranks on the CPU, loaded when needed; built if an MPI is installed.
MPICC := $(shell command -v mpicc)
MPI_MODULE := $(if $(MPICC),$(BUILD)/comm_mpi.so)
TESTS := $(patsubst tests/%.c,$(BUILD)/tests/%,$(wildcard tests/test_*.c))
LONGEST := $(patsubst %,$(BUILD)/tests/test_%,ranks rendezvous launch decode infer swiglu resume)
BENCHES := $(patsubst tests/%.c,$(BUILD)/%,$(wildcard tests/bench/*.c))
# One program with a name for each fuzzer.
FUZZERS := $(patsubst tests/fuzz/%.c,$(BUILD)/%,$(wildcard tests/fuzz/fuzz_*.c))
# Objects for the fuzzers: every contract, but no forms. The linker selects what it needs.
FUZZED := $(filter $(addprefix $(BUILD)/,base/% data/% comm/% profile/% report/% kernels/device/% kernels/gemm/% \
    $(join $(wildcard kernels/*),$(patsubst kernels/%,/%.o,$(wildcard kernels/*))) \
    $(addprefix kernels/,check.o ctx.o guard.o op.o record.o) $(addprefix optim/,adamw.o schedule.o) \
    $(addprefix model/,architectures.o checkpoint% config% parameter% scales.o shards.o) \
    tasks/% $(addprefix run/,compute_options% peaks% profiling_options% train_options%)),$(OBJECTS))
# Functions of base/files.h, base/directories.h and comm/wire.h that tests/fuzz/scratch.c and wires.c replace.
FUZZ_WRAPPED := file_map file_unmap file_read file_write path_kind path_glob path_in_cache gzopen \
    $(addprefix directory_,list lock make remove discard stage publish) $(addprefix file_writer_,open append write_at seeks close abandon) wire_listen wire_connect wire_accept wire_ready wire_receive wire_send device_clock
FUZZ_SECONDS ?= 20
# Operations and steps for compute-sanitizer. racecheck covers only kernels with ordinary stores to shared memory: it does not understand
# asynchronous copies that arrive at barriers, and reports races in attention's backward pass, as in cuBLAS's own kernels. initcheck
# considers memory written by another process, or by some cuBLASLt kernels, as uninitialized; tests that read such memory run with
# device memory filled with NaN instead.
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
	@echo 'variables: CUDA=0 (CPU only), DNNL=0 (without oneDNN), EDIT=0 (without libedit),'
	@echo '         GPU_TARGETS="80 90a", ARCH=native, BUILD=build, V=1 (show the commands)'

packages:
	@tools/packages $(PACKAGES) $(EXTRA_PACKAGES)

demo: packages  ## install packages, build, train a small GPT, generate text
	@$(MAKE) --no-print-directory all
	@tools/demo

demo-images: EXTRA_PACKAGES := $(IMAGE_PACKAGES)
demo-images: packages  ## train a small vision Transformer on Fashion-MNIST, evaluate it
	@$(MAKE) --no-print-directory all
	@tools/demo-images

test: EXTRA_PACKAGES := $(TEST_PACKAGES)
test: packages  ## install missing packages, build, run every test
	@$(MAKE) --no-print-directory all check

# Four tests at a time, because some mostly wait, and the longest first; on a GPU, whose memory and clock they share, one at a time.
check: tests
	@JOBS=$(if $(GPU),1,4) tests/run $(LONGEST) $(filter-out $(LONGEST),$(TESTS))

tests: $(BUILD)/train $(BUILD)/infer $(BUILD)/tools/profile $(MPI_MODULE) $(BENCHES) $(TESTS)

# ARGS, such as --only=step124,attention --out=FILE: tests/bench/run --help. LLMC=PATH names llm.c's train_gpt2cu,
# or where there is no GPU its train_gpt2, and a build of it with T = 256 beside it as train_gpt2-256.
bench: $(BUILD)/train $(BUILD)/infer $(BENCHES)  ## measure every benchmark; PEERS=1: PyTorch too; ARGS=--help
	@tests/bench/run --build=$(BUILD) $(if $(filter-out 0,$(PEERS)),--peers) $(if $(LLMC),--llmc=$(LLMC)) $(ARGS)

bench-rooms: $(BUILD)/train  ## measure every operation; write the tables of kernels/*/README.md
	@tests/bench/rooms --build=$(BUILD) $(ARGS)

# On a GPU the published sizes; on the CPU small ones, whose page stays in the build folder. ARGS: tests/bench/profiles --help.
profiles: $(BUILD)/train $(BUILD)/infer $(BUILD)/bench/gelu $(BUILD)/bench/pictures  ## record the published profiles; PEERS=1: PyTorch's too
	@tests/bench/profiles --build=$(BUILD) $(if $(filter-out 0,$(PEERS)),--peers) $(ARGS)

$(BUILD)/bench/gelu: $(if $(filter 1,$(CUDA)),$(BUILD)/tests/bench/gelu_cuda.cu.o)

# A build with CUDA=0 draws the CPU's path.
path: train infer  ## write the code that a step executes to a file; count its lines
	@CC='$(CC)' tools/path gpt2-nano --all --check --build=$(BUILD) $(ARGS)

# Without oneDNN, whose threads confuse the leak checker.
sanitize:  ## the tests under address and undefined-behaviour sanitizers
	@$(MAKE) --no-print-directory CUDA=0 DNNL=0 BUILD=$(BUILD)/sanitize ARCH=$(ARCH) \
	    EXTRA="-fsanitize=address,undefined -fno-sanitize-recover=all -O2" check

sanitize-gpu: export CUDA_HOME := $(CUDA_HOME)
sanitize-gpu:  ## the operations' tests on the GPU under compute-sanitizer
	@tests/sanitize-gpu
	@$(MAKE) --no-print-directory $(sort $(MEMCHECKED) $(RACECHECKED) $(RANKCHECKED)) $(BUILD)/attack/driver.so
	@LD_PRELOAD=$(abspath $(BUILD))/attack/driver.so ATTACK="nan 0 $(abspath $(BUILD))/attack/filled" tests/run $(MEMCHECKED)
	@tests/sanitize-gpu memcheck,synccheck $(MEMCHECKED)
	@tests/sanitize-gpu initcheck $(INITCHECKED)
	@tests/sanitize-gpu racecheck $(RACECHECKED)
	@tests/sanitize-gpu memcheck,synccheck $(RANKCHECKED)

fuzz: EXTRA_PACKAGES := $(FUZZ_PACKAGES)
fuzz: packages  ## run each fuzzer for FUZZ_SECONDS=20; print the coverage
	@$(MAKE) --no-print-directory CUDA=0 DNNL=0 BUILD=$(BUILD)/fuzz CC=clang FUZZ_SECONDS=$(FUZZ_SECONDS) fuzzers \
	    EXTRA="-fno-openmp -O1 -fno-sanitize-recover=all -fsanitize=fuzzer-no-link,address,undefined \
	    -fprofile-instr-generate -fcoverage-mapping"

# ARGS: tests/attack/run --help.
MINUTES ?= 30
attack: $(addprefix $(BUILD)/,train infer tools/profile attack/preload.so attack/driver.so attack/judge)  ## fault injection for MINUTES=30, or each EVERY=N-th case; JOBS=2
	@tests/attack/run --build=$(BUILD) $(if $(EVERY),--every=$(EVERY),--minutes=$(MINUTES)) $(if $(JOBS),--jobs=$(JOBS)) $(ARGS)

fuzzers: $(FUZZERS)
	@tests/fuzz/run $(FUZZ_SECONDS) $(BUILD)/fuzz $(FUZZERS:$(BUILD)/fuzz_%=%)

train infer: %: $(BUILD)/%
	@ln -sf $< $@

tools/profile: $(BUILD)/tools/profile
	@ln -sf $(abspath $<) $@

ALWAYS:

# The settings of the folder's last build; if they change (CUDA=0, ARCH, EXTRA, ...) its objects are rebuilt.
$(BUILD)/cc.options: WITH := $(CC) $(CFLAGS)
$(BUILD)/nvcc.options: WITH := $(NVCC) $(NVCCFLAGS)
$(BUILD)/link.options: WITH := $(LINK) $(OBJECTS) $(LDLIBS)
$(addprefix $(BUILD)/,cc.options nvcc.options link.options commit.options): ALWAYS
	@mkdir -p $(@D)
	@echo '$(WITH)' | cmp -s - $@ || echo '$(WITH)' >$@

# All objects but the programs' own, in one archive instead of a list for each of a hundred programs.
$(BUILD)/fusebox.o: $(OBJECTS) $(BUILD)/link.options
	$(call say,LD,$@)$(LD) -r -o $@ $(OBJECTS)

# The reader of profiles uses nothing of the runtime.
$(BUILD)/tools/profile: $(filter $(BUILD)/base/% $(BUILD)/report/%,$(OBJECTS)) $(BUILD)/link.options
$(BUILD)/train $(BUILD)/infer: $(BUILD)/fusebox.o
$(BUILD)/train $(BUILD)/infer $(BUILD)/tools/profile: $(BUILD)/%: $(BUILD)/%.o
	$(call say,LD,$@)$(LINK) -o $@ $(filter %.o,$^) $(LDLIBS)

$(BUILD)/tests/%: $(BUILD)/tests/%.o $(SUPPORT) $(BUILD)/fusebox.o
	$(call say,LD,$@)$(LINK) -o $@ $(filter %.o,$^) -lcmocka $(LDLIBS)

# A fake CUPTI with the real library's name, so that tests of the profiler need no GPU.
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

# In damaged files stb's arithmetic overflows, it shifts by more than 31 where the bits run out, and it copies 0 bytes to NULL.
$(BUILD)/tasks/pictures/images/stb.o $(BUILD)/tasks/pictures/images/write.o: CFLAGS += -fwrapv
$(BUILD)/tasks/pictures/images/stb.o: CFLAGS += -fno-sanitize=shift,nonnull-attribute

$(BUILD)/report/page.o $(BUILD)/report/sweep.o: $(wildcard report/page/*)

$(BUILD)/report/anatomy_rows.c: tools/anatomy $(KERNELS)
	@mkdir -p $(@D)
	@tools/anatomy $(KERNELS) >$@
$(BUILD)/report/anatomy_rows.o: $(BUILD)/report/anatomy_rows.c $(BUILD)/cc.options
	$(call say,CC,$<)$(CC) $(CFLAGS) -c -o $@ $<

# Profiles record the build's commit and targets.
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

# The programs are in one folder, because ./train loads the module beside it; links have names that do not collide.
PREFIX ?= /usr/local
install: all  ## install programs, manuals, completion; PREFIX=/usr/local, DESTDIR=
	@install -d $(addprefix $(DESTDIR)$(PREFIX)/,bin lib/fusebox share/man/man1 share/bash-completion/completions \
	    share/zsh/site-functions)
	@install $(BUILD)/train $(BUILD)/infer $(BUILD)/tools/profile $(MPI_MODULE) $(DESTDIR)$(PREFIX)/lib/fusebox
	@for p in train infer profile; do ln -sf ../lib/fusebox/$$p $(DESTDIR)$(PREFIX)/bin/fusebox-$$p; done
	@cd $(DESTDIR)$(PREFIX) && lib/fusebox/profile --manual >share/man/man1/fusebox-profile.1 && for p in train infer; do \
	    lib/fusebox/$$p --manual >share/man/man1/fusebox-$$p.1 && \
	    lib/fusebox/$$p --completion-bash >share/bash-completion/completions/fusebox-$$p && \
	    lib/fusebox/$$p --completion-zsh >share/zsh/site-functions/_fusebox-$$p || exit 1; done

uninstall:  ## remove the installed files under PREFIX
	@cd $(DESTDIR)$(PREFIX) && rm -rf lib/fusebox && for p in train infer profile; do \
	    rm -f bin/fusebox-$$p share/man/man1/fusebox-$$p.1 share/bash-completion/completions/fusebox-$$p \
	        share/zsh/site-functions/_fusebox-$$p; done

format:  ## format the source with clang-format
	clang-format -i $$(git ls-files '*.c' '*.h' '*.cu' '*.cuh')

clean:  ## remove the build
	rm -rf $(BUILD) train infer tools/profile

-include $(shell find $(BUILD) -name '*.d' 2>/dev/null)
