/* Training on several CPU ranks by MPI, from the user's side: results equal to one rank's, checkpoints across
 * numbers of ranks, lost ranks, and starts that fail. Skipped without mpirun, or in a build without MPI. */
#include "tests/support/program.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Settings that Open MPI requires for root, in a container, with few cores. It leaks memory when it ends. */
#define MPIRUN                                                                                               \
    "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 "         \
    "OMPI_MCA_mpi_yield_when_idle=1 OMP_NUM_THREADS=1 ASAN_OPTIONS=detect_leaks=0 mpirun "
#define COMMON "--device=cpu --threads=1 --peaks=0 --sample-every=0 --lr=1e-2 "
#define SMALL                                                                                                \
    COMMON "--layers=3 --width=64 --heads=2 --context=32 --batch=2 --data=text.txt "                         \
           "--val-data=validation.txt --val-every=2 --val-steps=5 "
#define ENDLESS                                                                                              \
    COMMON "--layers=2 --width=32 --heads=2 --context=32 --batch=2 --data=text.txt --val-every=0 "           \
           "--schedule=constant --warmup=0 --steps=1000000 --save-every=10 -q "

static void needs_mpi(const char *folder) {
    const Ran *ran =
        program_run(folder, "command -v mpirun && ls $(dirname $(command -v train))/comm_mpi.so");
    if (ran->code == 0) return;
    print_message("skipped: there is no mpirun, or this build has no MPI (libopenmpi-dev, openmpi-bin)\n");
    skip();
}

/* ---- the same bits ---- */

static void expect_same_step(const char *folder, const char *one, const char *other, int step) {
    static const char *const files[] = {"model.safetensors", "training_state.safetensors"};
    for (int i = 0; i < 2; i++) {
        char a[128], b[128];
        snprintf(a, sizeof a, "%s/step-%08d/%s", one, step, files[i]);
        snprintf(b, sizeof b, "%s/step-%08d/%s", other, step, files[i]);
        expect_same_file(folder, a, b);
    }
}

/* Losses, norms, weights and moments of `ranks` ranks with one micro-batch each equal those of one rank with
 * `ranks` micro-batches, with naive and fused communication; with `naive` also if everything runs naive. */
static void expect_same_bits(const char *folder, int ranks, bool naive, const char *options) {
    static const char *const forms[] = {"1", "1,-comm", "0"};
    for (int i = 0; i < 2 + naive; i++) {
        program_succeeds(folder, "rm -rf many");
        if (i != 1) // one rank does not communicate
            program_succeeds(folder,
                             "rm -rf one && train %s --accum=%d --steps=4 --fused=%s --out=one "
                             "--log=one.jsonl -q",
                             options, ranks, forms[i]);
        program_succeeds(folder, MPIRUN "-n %d train %s --steps=4 --fused=%s --out=many --log=many.jsonl -q",
                         ranks, options, forms[i]);
        assert_string_equal(log_numbers(folder, "one.jsonl", 0), log_numbers(folder, "many.jsonl", 0));
        expect_same_step(folder, "one", "many", 4);
    }
}

static void test_decoder(void **state) {
    needs_mpi(*state);
    expect_same_bits(*state, 2, true, SMALL "--dropout=0.1");
}

static void test_decoder_on_four(void **state) {
    needs_mpi(*state);
    expect_same_bits(*state, 4, false, SMALL "--recompute=blocks");
}

/* The number of targets differs between micro-batches. The first block is large enough to be exchanged
 * separately, after the embeddings. */
static void test_masked_tokens(void **state) {
    needs_mpi(*state);
    program_succeeds(*state,
                     "mkdir -p bert && printf '[PAD]\\n[UNK]\\n[CLS]\\n[SEP]\\n[MASK]\\none\\ntoken\\n"
                     "after\\nanother\\nmakes\\na\\ntext\\nof\\nwords\\n.\\n' >bert/vocab.txt");
    expect_same_bits(*state, 2, false,
                     COMMON "--model=bert-nano --layers=1 --width=128 --heads=2 --context=32 --batch=3 "
                            "--data=text.txt --tokenizer=bert --dropout=0.1 --val-every=2");
}

/* The same with different row lengths. */
static void test_pairs(void **state) {
    needs_mpi(*state);
    program_succeeds(*state, "head -c 3000 text.txt >source.txt && tr a-m n-z <source.txt >target.txt && "
                             "train --train-tokenizer=280 --data=source.txt,target.txt --out=tokenizer -q");
    expect_same_bits(*state, 2, false,
                     COMMON "--model=transformer-nano --layers=1 --width=32 --heads=2 --context=64 --batch=3 "
                            "--data=source.txt,target.txt --tokenizer=tokenizer --dropout=0.1 --val-every=2");
}

/* Ranks agree on the scales of products in 8 bits, which are part of the state that a checkpoint holds. */
static void test_fp8(void **state) {
    needs_mpi(*state);
    program_succeeds(*state,
                     "train " SMALL "--accum=2 --steps=4 --fused=1,fp8 --out=one8 --log=one8.jsonl -q");
    program_succeeds(*state,
                     MPIRUN "-n 2 train " SMALL "--steps=4 --fused=1,fp8 --out=many8 --log=many8.jsonl -q");
    assert_string_equal(log_numbers(*state, "one8.jsonl", 0), log_numbers(*state, "many8.jsonl", 0));
    expect_same_step(*state, "one8", "many8", 4);
}

/* Several micro-batches per rank are summed rank by rank, in the same order in both forms. */
static void test_micro_batches(void **state) {
    needs_mpi(*state);
    program_succeeds(*state, MPIRUN "-n 2 train " SMALL "--steps=4 --accum=3 --log=a.jsonl -q");
    program_succeeds(*state,
                     MPIRUN "-n 2 train " SMALL "--steps=4 --accum=3 --log=b.jsonl --fused=1,-comm -q");
    assert_string_equal(log_numbers(*state, "a.jsonl", 0), log_numbers(*state, "b.jsonl", 0));
}

/* ---- the profile ---- */

/* Rank 0 reports what all ranks recorded; with --log-rank=all each has a log. */
static void test_profile(void **state) {
    const char *folder = *state;
    needs_mpi(folder);
    program_succeeds(folder, MPIRUN "-n 3 train " SMALL
                                    "--steps=12 --profile --profile-out=profile --profile-trace=trace.json "
                                    "--report=questions "
                                    "--log=log.jsonl --log-rank=all >profile.txt");
    program_succeeds(
        folder, "grep -q 'passed the ranks ran the same collectives: .* on each of 3 ranks' profile.txt");
    program_succeeds(folder, "grep -q 'passed no rank leaves a collective before all are in it' profile.txt");
    program_succeeds(
        folder, "grep -q '^7. Does communication bind' profile.txt && grep -q 'is the slowest' profile.txt");
    program_succeeds(folder, "grep -q 'rank 2, host' profile/trace.json && "
                             "grep -q '\"cat\":\"collective\"' profile/trace.json");
    program_succeeds(
        folder, "[ $(grep -c ^ profile/tables/distribution.csv) = 5 ] && "
                "for of in gradients weights squares losses; do grep -q $of profile/tables/communication.csv "
                "|| exit 1; done");
    program_succeeds(
        folder, "for r in '' .rank1 .rank2; do [ $(grep -c '\"step\"' log.jsonl$r) -ge 12 ] || exit 1; done");
}

/* ---- checkpoints ---- */

/* A run resumed with another number of ranks equals one that always had it. */
static void test_resume(void **state) {
    const char *folder = *state;
    needs_mpi(folder);
    program_succeeds(folder, "train " SMALL "--accum=4 --steps=6 --save-every=3 --out=whole -q");
    program_succeeds(folder, "cp -r whole part && rm -r part/step-00000006");
    program_succeeds(folder,
                     MPIRUN "-n 4 train --device=cpu --peaks=0 --resume --out=part --accum=1 --threads=1 -q");
    expect_same_step(folder, "whole", "part", 6);
    program_succeeds(folder, MPIRUN "-n 4 train " SMALL "--steps=3 --schedule=constant --warmup=0 --out=four "
                                    "-q");
    program_succeeds(folder,
                     "train " SMALL "--steps=5 --schedule=constant --warmup=0 --accum=4 --out=five -q");
    program_succeeds(folder, RESUME " --device=cpu --out=four --accum=4 --steps=5 --threads=1 -q");
    expect_same_step(folder, "four", "five", 5);
}

/* Rank 0 creates the folder while the others may look for it, and only rank 0 reports what is damaged. */
static void test_resume_elsewhere(void **state) {
    const char *folder = *state;
    needs_mpi(folder);
    program_succeeds(folder, "train " SMALL "--accum=2 --steps=4 --save-every=2 --out=source -q");
    for (int i = 0; i < 4; i++)
        program_succeeds(folder,
                         MPIRUN "-n 2 train --device=cpu --peaks=0 --resume=source/step-00000002 "
                                "--out=elsewhere%d --accum=1 --threads=1 -q",
                         i);
    expect_same_step(folder, "source", "elsewhere3", 4);
    program_succeeds(folder, "printf damage | dd of=source/step-00000004/model.safetensors bs=1 seek=9000 "
                             "conv=notrunc status=none");
    const Ran *ran = program_succeeds(
        folder, MPIRUN "-n 2 train --device=cpu --peaks=0 --resume --out=source --accum=1 --threads=1 -q");
    const char *reports = strstr(ran->error, "is damaged and skipped");
    assert_non_null(reports);
    assert_null(strstr(reports + 1, "is damaged and skipped"));
}

/* A signal to one rank: all finish the step, and one saves. */
static void test_interrupt(void **state) {
    const char *folder = *state;
    needs_mpi(folder);
    program_succeeds(folder, MPIRUN
                     "-n 2 sh -c '(for i in $(seq 600); do ls -d stopped/step-*[0-9] >ls.$$ 2>&1 && break; "
                     "sleep 0.1; done; [ $OMPI_COMM_WORLD_RANK = 0 ] || kill -INT $$) & "
                     "exec train " ENDLESS "--out=stopped'");
    program_succeeds(folder, RESUME " --out=stopped --steps=1 --accum=2 -q");
}

/* ---- lost ranks ---- */

/* Starts three ranks, each of which writes its process id to pid.RANK, its errors to error.RANK and its exit
 * code to code.RANK. Kills one of them `ms` after the rendezvous, or with -1 when there is a checkpoint. The
 * others end in time with code 6 and a line that names it; the last checkpoint is complete and not locked. */
static void expect_ends(const char *folder, int victim, int ms) {
    program_succeeds(folder, "rm -rf dying pid.* code.* error.*");
    pid_t mpirun = program_start(
        folder, "env " MPIRUN "--enable-recovery -n 3 sh -c 'R=$OMPI_COMM_WORLD_RANK; train " ENDLESS
                "--out=dying 2>error.$R & echo $! >pid.$R; wait $!; echo $? >code.$R'");
    program_succeeds(folder,
                     "for i in $(seq 3000); do ls -d dying%s >ls.dying 2>&1 && break; sleep 0.01; done; "
                     "sleep %d.%03d; kill -9 $(cat pid.%d)",
                     ms < 0 ? "/step-*[0-9]" : "", ms < 0 ? 0 : ms / 1000, ms < 0 ? 0 : ms % 1000, victim);
    program_succeeds(folder,
                     "for i in $(seq 300); do [ -s code.0 ] && [ -s code.1 ] && [ -s code.2 ] && break; "
                     "sleep 0.1; done; for r in 0 1 2; do ! kill -0 $(cat pid.$r) && [ $(cat code.$r) = "
                     "$([ $r = %d ] && echo 137 || echo 6) ] || exit 1; done",
                     victim);
    program_succeeds(folder,
                     "cat error.* >said; grep -q 'train: rank %d on .* is gone; its last action: ' said || "
                     "{ cat said >&2; exit 1; }",
                     victim);
    for (int i = 0; i < 50 && program_runs(mpirun); i++) wait_ms(100);
    if (program_runs(mpirun)) kill(mpirun, SIGKILL); // Open MPI's shutdown sometimes hangs
    (void)program_end(folder, mpirun);
    const Ran *ran = program_succeeds(folder, "! ls -d dying/step-*[0-9] || " RESUME
                                              " --out=dying --steps=1 --accum=3 -q");
    assert_null(strstr(ran->error, "damaged"));
}

/* FUSEBOX_KILLS=50 kills each rank at so many random instants. */
static void test_kill(void **state) {
    const char *kills = getenv("FUSEBOX_KILLS");
    needs_mpi(*state);
    expect_ends(*state, 0, -1);
    expect_ends(*state, 2, -1);
    srand(1);
    for (int i = 0; i < 3 * (kills ? atoi(kills) : 1); i++) expect_ends(*state, i % 3, rand() % 2000);
}

/* ---- starts that fail ---- */

static void test_wrong_starts(void **state) {
    static const struct {
        const char *command, *part;
        ErrorCode code;
    } cases[] = {
        {"train --gpus=2 --device=cpu", "on the CPU mpirun starts them", ERROR_USAGE},
        {"train --gpus=0 --device=cuda:1", "leave out --device=cuda:1", ERROR_USAGE},
        {"env RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 train", "MASTER_ADDR is not set", ERROR_USAGE},
        {"env RANK=2 WORLD_SIZE=2 LOCAL_RANK=0 train", "ranks are numbered from 0", ERROR_USAGE},
        {MPIRUN "-n 2 train " SMALL "--gpus=3", "--gpus=3, but Open MPI has started 2 ranks", ERROR_USAGE},
        {MPIRUN "-n 2 train " SMALL "--comm=nccl", "nccl is for GPUs", ERROR_USAGE},
        {MPIRUN "-n 2 train " SMALL "--comm=tcp", "expected auto|nccl|peer|mpi", ERROR_USAGE},
        {MPIRUN "-n 2 train " SMALL "--sweep --seq-lens=8 --profile-out=p", "--sweep is for one rank",
         ERROR_USAGE},
        {MPIRUN "-n 2 train --model=nothing", "nothing", ERROR_USAGE},
        {MPIRUN "-n 2 train " SMALL "--data=missing.txt", "missing.txt", ERROR_FILE},
        {MPIRUN "-n 1 train " SMALL "--batch=2 --steps=8 : -n 1 train " SMALL "--batch=4",
         "has --batch=4: all ranks need the same", ERROR_USAGE},
        {MPIRUN "-n 1 train " SMALL "--steps=8 : -n 1 train " SMALL "--seed=4",
         " has --seed=4, and rank 0 has no --seed", ERROR_USAGE},
        {MPIRUN "-n 2 sh -c 'mkdir -p at$OMPI_COMM_WORLD_RANK && cd at$OMPI_COMM_WORLD_RANK && "
                "head -c 9${OMPI_COMM_WORLD_RANK}00 ../text.txt >text.txt && exec train " COMMON
                "--context=32 --data=text.txt --val-every=0'",
         "rank 0 has the data's fingerprint=", ERROR_USAGE},
        {"env RANK=0 WORLD_SIZE=two LOCAL_RANK=0 train", "WORLD_SIZE=two: a number from 1", ERROR_USAGE},
        {"env RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 MASTER_ADDR=::1 MASTER_PORT=99999 train",
         "MASTER_PORT=99999: a number from 1 to 65535", ERROR_USAGE},
        {"env RANK=1 WORLD_SIZE=2 LOCAL_RANK=1 MASTER_ADDR=no..such MASTER_PORT=29511 train " SMALL,
         "there is no host no..such", ERROR_USAGE},
        {MPIRUN "-n 2 env FUSEBOX_MPI=text.txt train " SMALL, "its module does not load", ERROR_DEVICE},
        {MPIRUN "-n 2 train " SMALL "--comm-timeout=-2", "expected a number of at least -1", ERROR_USAGE},
        {MPIRUN "-n 2 train " SMALL "--log-rank=some", "expected first|all", ERROR_USAGE},
        {MPIRUN "-n 2 train --resume --out=nowhere", "there is no complete checkpoint", ERROR_FILE},
        {MPIRUN "-n 2 train " SMALL "--out=/proc/nothing", "cannot make the folder", ERROR_FILE},
        {MPIRUN "-n 2 train " SMALL "--train-tokenizer=300 --out=t", "--train-tokenizer is for one rank",
         ERROR_USAGE},
        /* Launchers other than MPI. */
        {"(env RANK=1 WORLD_SIZE=2 LOCAL_RANK=1 MASTER_ADDR=127.0.0.1 MASTER_PORT=29541 train " SMALL
         "--steps=8 >rank1 2>&1 &); env RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 MASTER_ADDR=127.0.0.1 "
         "MASTER_PORT=29541 train " SMALL,
         "start ranks on the CPU with mpirun", ERROR_USAGE},
    };
    needs_mpi(*state);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const Ran *ran = program_run(*state, "%s --steps=8", cases[i].command);
        if (ran->code != (int)cases[i].code || !strstr(ran->error, cases[i].part))
            fail_msg("case %zu: exit code %d and\n%s", i, ran->code, ran->error);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_decoder),
        cmocka_unit_test(test_decoder_on_four),
        cmocka_unit_test(test_masked_tokens),
        cmocka_unit_test(test_pairs),
        cmocka_unit_test(test_micro_batches),
        cmocka_unit_test(test_profile),
        cmocka_unit_test(test_fp8),
        cmocka_unit_test(test_resume),
        cmocka_unit_test(test_resume_elsewhere),
        cmocka_unit_test(test_interrupt),
        cmocka_unit_test(test_kill),
        cmocka_unit_test(test_wrong_starts),
    };
    return cmocka_run_group_tests(tests, program_setup, scratch_teardown);
}
