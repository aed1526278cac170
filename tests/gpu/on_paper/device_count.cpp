// Stands before torch's own count of CUDA devices: none while torch is imported, then as many as the paper has.
static signed char count = 0;
extern "C" void set_paper_devices(int devices) { count = devices; }
namespace c10 { namespace cuda { signed char device_count() noexcept { return count; } } }
