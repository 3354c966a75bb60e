/* Runs a model once: run_once_c model.onnx input.bin output.bin threads. The files hold a tensor's float32
 * elements, nothing else. */
#include <fcntl.h>
#include <onnxruntime_c_api.h>
#include <onnxruntime_session_options_config_keys.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static const OrtApi* ort;

static void must(OrtStatus* status) {
  if (status != NULL) {
    fprintf(stderr, "%s\n", ort->GetErrorMessage(status));
    exit(1);
  }
}

int main(int argc, char** argv) {
  ort = OrtGetApiBase()->GetApi(ORT_API_VERSION);
  if (argc != 5 || ort == NULL) {
    fprintf(stderr, "usage: run_once_c model.onnx input.bin output.bin threads\n");
    return 2;
  }
  OrtEnv* env;
  OrtSessionOptions* options;
  OrtSession* session;
  must(ort->CreateEnv(ORT_LOGGING_LEVEL_ERROR, "run_once", &env));
  must(ort->CreateSessionOptions(&options));
  const char *const keys[] = {"intra_op_num_threads"}, *const threads[] = {argv[4]};
  must(ort->SessionOptionsAppendExecutionProvider(options, "XNNPACK", keys, threads, 1));
  /* The provider has threads of its own: those of the session must not take processors from them. */
  must(ort->SetIntraOpNumThreads(options, 1));
  must(ort->AddSessionConfigEntry(options, kOrtSessionOptionsConfigAllowIntraOpSpinning, "0"));
  /* Debian's library registers its operators twice with the first session, and says so for each of them. */
  int errors = dup(STDERR_FILENO), nothing = open("/dev/null", O_WRONLY);
  dup2(nothing, STDERR_FILENO);
  OrtStatus* created = ort->CreateSession(env, argv[1], options, &session);
  dup2(errors, STDERR_FILENO);
  must(created);

  OrtAllocator* allocator;
  char *in, *out;
  OrtTypeInfo* type;
  const OrtTensorTypeAndShapeInfo* spec;
  int64_t shape[8];
  size_t rank, count;
  must(ort->GetAllocatorWithDefaultOptions(&allocator));
  must(ort->SessionGetInputName(session, 0, allocator, &in));
  must(ort->SessionGetOutputName(session, 0, allocator, &out));
  must(ort->SessionGetInputTypeInfo(session, 0, &type));
  must(ort->CastTypeInfoToTensorInfo(type, &spec));
  must(ort->GetDimensionsCount(spec, &rank));
  must(ort->GetDimensions(spec, shape, rank < 8 ? rank : 8));
  must(ort->GetTensorShapeElementCount(spec, &count));
  float* data = calloc(count, sizeof *data);
  FILE* file = fopen(argv[2], "rb");
  if (file == NULL || fread(data, sizeof *data, count, file) != count || fclose(file) != 0) return 1;

  OrtMemoryInfo* memory;
  OrtValue *input, *output = NULL;
  must(ort->CreateCpuMemoryInfo(OrtArenaAllocator, OrtMemTypeDefault, &memory));
  must(ort->CreateTensorWithDataAsOrtValue(memory, data, count * sizeof *data, shape, rank,
                                           ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, &input));
  const char *const inputs[] = {in}, *const outputs[] = {out};
  const OrtValue* const given[] = {input};
  must(ort->Run(session, NULL, inputs, given, 1, outputs, 1, &output));

  OrtTensorTypeAndShapeInfo* result;
  float* values;
  must(ort->GetTensorTypeAndShape(output, &result));
  must(ort->GetTensorShapeElementCount(result, &count));
  must(ort->GetTensorMutableData(output, (void**)&values));
  file = fopen(argv[3], "wb");
  if (file == NULL || fwrite(values, sizeof *values, count, file) != count || fclose(file) != 0) return 1;
  for (size_t i = 0; i < count; ++i) printf("%.9g\n", values[i]);

  ort->ReleaseTensorTypeAndShapeInfo(result);
  ort->ReleaseValue(output);
  ort->ReleaseValue(input);
  ort->ReleaseMemoryInfo(memory);
  ort->ReleaseTypeInfo(type);
  must(ort->AllocatorFree(allocator, in));
  must(ort->AllocatorFree(allocator, out));
  ort->ReleaseSession(session);
  ort->ReleaseSessionOptions(options);
  ort->ReleaseEnv(env);
  free(data);
  return 0;
}
