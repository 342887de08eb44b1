export class SamplersView { constructor(){} close(){} show(){} }
